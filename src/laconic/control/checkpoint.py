"""Checkpoints: each rank's own ledger in its own file, tensors and plain values only, whole or absent."""

import hashlib
import io
import os
import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from laconic.errors import StateError

VERSION = 2  # 1: factors of low rank that stay warm went with the columns, not with the longer side
NAME = "laconic-{rank:05d}-of-{size:05d}.pt"
PATTERN = re.compile(r"laconic-(\d{5})-of-(\d{5})\.pt")


def digest(state: Mapping[str, Any]) -> str:
    """SHA-256 over every value, in a canonical order."""
    total = hashlib.sha256()

    def visit(value: Any) -> None:
        if isinstance(value, Tensor):
            total.update(f"{value.dtype}{tuple(value.shape)}".encode())
            total.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
        elif isinstance(value, Mapping):
            for key in sorted(value):
                total.update(str(key).encode())
                visit(value[key])
        else:
            total.update(repr(value).encode())

    visit({key: value for key, value in state.items() if key != "digest"})
    return total.hexdigest()


def check(state: Mapping[str, Any], source: str) -> None:
    """Raise StateError unless this is a whole state of a version that can be read."""
    if not isinstance(state, Mapping) or "laconic_state" not in state:
        raise StateError(f"{source} is not a laconic state: save one with handle.save(folder) or handle.state_dict()")
    version = state["laconic_state"]
    if version != VERSION:
        raise StateError(
            f"{source} has version {version}, and this laconic reads version {VERSION}: use the laconic that wrote it"
        )
    missing = {"rank", "world_size", "plan", "step", "layers", "policy", "digest"} - set(state)
    if missing:
        raise StateError(f"{source} lacks {sorted(missing)[0]!r}: it was cut short or edited; use an older checkpoint")
    if digest(state) != state["digest"]:
        raise StateError(f"{source} is damaged: its contents do not match its digest; use an older checkpoint")


def write(folder: str | Path, state: Mapping[str, Any]) -> Path:
    """Save one rank's state; a process that is killed meanwhile leaves the old file whole."""
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    path = place / NAME.format(rank=state["rank"], size=state["world_size"])
    buffer = io.BytesIO()
    torch.save(dict(state), buffer)
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        file.write(buffer.getbuffer())
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    return path


def read(folder: str | Path, rank: int, size: int) -> list[Mapping[str, Any]]:
    """The states that `rank` of `size` needs: its own; or, if the run had another size, every rank's of that run."""
    own = Path(folder) / NAME.format(rank=rank, size=size)
    if own.exists():
        return [_load(own)]
    found = sorted(path for path in Path(folder).glob("laconic-*.pt") if PATTERN.fullmatch(path.name))
    if not found:
        raise StateError(f"{folder} holds no laconic state; handle.save({str(folder)!r}) writes one file for each rank")
    sizes = {int(match[2]) for path in found if (match := PATTERN.fullmatch(path.name))}
    if size in sizes or len(sizes) > 1:
        raise StateError(f"{own} is missing: copy every rank's file of one checkpoint into {folder}")
    (saved,) = sizes
    if len(found) != saved:
        raise StateError(
            f"{folder} holds {len(found)} of {saved} files: to resume at another world size all are needed"
        )
    return [_load(path) for path in found]


def _load(path: Path) -> Mapping[str, Any]:
    try:
        state = torch.load(path, weights_only=True, map_location="cpu")
    except (OSError, RuntimeError, EOFError, ValueError, zipfile.BadZipFile) as error:
        raise StateError(f"{path} cannot be read, it may be truncated: {error}") from None
    except Exception as error:  # pickle's own errors, whose class torch does not promise
        raise StateError(f"{path} is not a laconic state: {type(error).__name__}: {error}") from None
    check(state, str(path))
    name = NAME.format(rank=state["rank"], size=state["world_size"])
    if name != path.name:
        raise StateError(f"{path} holds the state that was saved as {name}: copy each rank's own file")
    return state  # type: ignore[no-any-return]


def shares(states: Sequence[Mapping[str, Any]], rank: int, size: int) -> list[Mapping[str, Any]]:
    """Which old ranks' residuals a rank of a world of another size takes over: so that their sum is kept."""
    return [state for state in states if int(state["rank"]) % size == rank]
