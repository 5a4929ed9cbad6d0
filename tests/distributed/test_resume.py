"""Saving and going on: the bits of a run that never stopped; and files that cannot be trusted."""

import copy
import io
import os
import pickle
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from ranks import outcomes, run
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel as DDP
from training import EVERY_ROUTE, alike, bits, ddp, toy, train

import laconic

SAVED, MORE = 4, 20


def _through_memory(state: Any) -> Any:
    file = io.BytesIO()
    torch.save(state, file)
    return torch.load(io.BytesIO(file.getvalue()), weights_only=True)


def _ledger(handle: laconic.Handle) -> str:
    layers = handle.state_dict()["layers"]
    return bits(layers[name][key] for name in sorted(layers) for key in sorted(layers[name]))


def _begin(compressor: laconic.Compressor, node_size: int) -> tuple[DDP, torch.optim.Optimizer, laconic.Handle]:
    """Buckets are not rebuilt: where three or more ranks add up, the order of the terms depends on a layer's place in
    its bucket, and DDP itself gives a resumed run's first step other bits for that reason."""
    model = ddp(toy(), find_unused_parameters=True)
    handle = laconic.attach(model, compressor, node_size=node_size)
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), handle


def stop_and_go_on(
    rank: int, folder: str, node_size: int, routes: tuple[laconic.Compressor, ...]
) -> dict[str, tuple[list[list[str]], str]]:
    """By route: the bits of every step after the save, uninterrupted and resumed in each way; and the ledger saved."""
    told = {}
    for number, compressor in enumerate(routes):
        model, optimizer, handle = _begin(compressor, node_size)
        train(model, rank, range(SAVED), optimizer=optimizer)
        saved = copy.deepcopy((model.module.state_dict(), optimizer.state_dict()))
        place = Path(folder) / str(number)
        handle.save(place)
        state, kept = _through_memory(handle.state_dict()), _ledger(handle)

        def go_on(
            model: DDP, optimizer: torch.optim.Optimizer, handle: laconic.Handle, start: int = SAVED
        ) -> list[str]:
            seen: list[str] = []
            steps = range(start, start + MORE)
            train(model, rank, steps, optimizer=optimizer, each=lambda _: seen.append(bits(model.parameters())))
            return [*seen, bits(model.parameters()), _ledger(handle), str(handle.steps)]

        runs = [go_on(model, optimizer, handle)]
        for way in ("folder", "state"):
            model, optimizer, handle = _begin(compressor, node_size)
            model.module.load_state_dict(saved[0])
            optimizer.load_state_dict(copy.deepcopy(saved[1]))
            if way == "folder":
                handle.load(place)
            else:
                handle.load_state_dict(state)
            runs.append(go_on(model, optimizer, handle))
        told[str(compressor)] = (runs, kept)
    return told


HIERARCHICAL = tuple(route for route in EVERY_ROUTE if isinstance(route, laconic.Hierarchical))


@pytest.mark.parametrize(("world", "node_size", "routes"), [(2, 1, EVERY_ROUTE), (4, 2, HIERARCHICAL[:2])])
def test_a_resumed_run_has_the_bits_of_one_that_never_stopped(
    tmp_path: Path, world: int, node_size: int, routes: tuple[laconic.Compressor, ...]
) -> None:
    told = run(stop_and_go_on, world, folder=str(tmp_path), node_size=node_size, routes=routes, deadline=100)
    for rank, one in enumerate(told):
        for name, (runs, _) in one.items():
            assert alike(runs), f"{name}: rank {rank} goes on otherwise after a resume"
    lossy = [str(route) for route in routes if not isinstance(route, laconic.Hierarchical) and not route.lossless]
    assert [name for name in lossy if told[0][name][1] == told[1][name][1]] == [], "each rank has its own residual"


PLAN = laconic.Plan({"0.weight": laconic.TopK(density=0.1), "2.weight": laconic.PowerSGD(rank=2)})


def save_after(rank: int, folder: str, steps: int = 3) -> dict[str, Tensor]:
    model = ddp(toy())
    handle = laconic.attach(model, PLAN)
    train(model, rank, range(steps))
    handle.save(folder)
    return {name: entry["residual"] for name, entry in handle.state_dict()["layers"].items() if "residual" in entry}


def load_elsewhere(rank: int, folder: str) -> tuple[str, dict[str, Tensor], list[str], int]:
    model = ddp(toy())
    handle = laconic.attach(model, PLAN)
    said = handle.load(folder)
    layers = handle.state_dict()["layers"]
    held = {name: entry["residual"] for name, entry in layers.items() if "residual" in entry}
    seen: list[str] = []
    train(model, rank, range(3), each=lambda _: seen.append(bits(p.grad for p in model.parameters())))
    return said, held, seen, handle.steps


@pytest.mark.parametrize(("before", "after"), [(4, 2), (2, 4), (2, 3)])
def test_another_world_size_keeps_the_sum_of_residuals_and_says_so(tmp_path: Path, before: int, after: int) -> None:
    saved = run(save_after, before, folder=str(tmp_path))
    told = run(load_elsewhere, after, folder=str(tmp_path))
    assert set(saved[0]) == set(PLAN)
    for name in PLAN:
        total = sum(one[name].double() for one in saved)
        kept = sum(one[1][name].double() for one in told)
        norm = sum(one[name].double().norm() for one in saved)
        assert float((total - kept).norm()) <= before * 2**-24 * float(norm)
    assert alike([one[2] for one in told])
    for rank, (said, _, _, steps) in enumerate(told):
        ranks = ", ".join(str(old) for old in range(before) if old % after == rank) or "none"
        assert f"from a world of {before} in one of {after}" in said
        assert said.endswith(f"residuals of rank {ranks}"), said
        assert steps == 6


def _damage(kind: str, folder: Path) -> Path:
    """Spoil rank 1's file of two; its path."""
    path, other = folder / "laconic-00001-of-00002.pt", folder / "laconic-00000-of-00002.pt"
    content = path.read_bytes()
    if kind == "truncated":
        path.write_bytes(content[: len(content) // 2])
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "missing":
        path.unlink()
    elif kind == "wrong rank":
        path.write_bytes(other.read_bytes())
    elif kind == "not a state":
        torch.save({"model": torch.zeros(2)}, path)
    elif kind == "a pickle that runs code":
        path.write_bytes(pickle.dumps(_Exploit()))
    else:
        state = torch.load(path, weights_only=True)
        if kind == "newer":
            state["laconic_state"] = 99
        elif kind == "edited":
            state["layers"]["0.weight"]["residual"][5] += 1
        elif kind == "cut out":
            del state["layers"]
        torch.save(state, path)
    return path


class _Exploit:
    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, ("/tmp/laconic-was-here",)


KINDS = [
    "truncated", "empty", "missing", "wrong rank", "not a state", "a pickle that runs code", "newer", "edited",
    "cut out",
]  # fmt: skip


def load_damaged(rank: int, folders: dict[str, str]) -> dict[str, tuple[str, str, bool]]:
    model = ddp(toy())
    handle = laconic.attach(model, PLAN)
    train(model, rank, range(2))
    told = {}
    for kind, folder in folders.items():
        before = _ledger(handle)
        try:
            handle.load(folder)
            error: Exception = AssertionError("it loaded")
        except laconic.LaconicError as caught:
            error = caught
        told[kind] = (type(error).__name__, str(error), _ledger(handle) == before)
    train(model, rank, range(2))
    return told


def test_a_file_that_cannot_be_trusted_is_named_and_nobody_goes_on_alone(tmp_path: Path) -> None:
    folders = {}
    for kind in KINDS:
        folder = tmp_path / kind
        run(save_after, 2, folder=str(folder))
        _damage(kind, folder)
        folders[kind] = str(folder)
    zero, one = run(load_damaged, 2, folders=folders, timeout=20)
    for kind in KINDS:
        name, words, untouched = one[kind]
        assert name == "StateError", f"{kind}: {name}: {words}"
        assert "laconic-00001-of-00002.pt" in words, f"{kind}: {words}"
        assert untouched, f"{kind}: something was loaded"
        name, words, untouched = zero[kind]
        assert name == "Disagreement", f"{kind}: {name}: {words}"
        assert "rank 1" in words, f"{kind}: {words}"
        assert untouched, f"{kind}: rank 0 went on alone"
    assert not Path("/tmp/laconic-was-here").exists()


def flip_bits(rank: int, folder: str) -> tuple[int, list[str]]:
    handle = laconic.attach(ddp(toy()), PLAN)
    path = Path(folder) / "laconic-00000-of-00001.pt"
    content, refused, wrong = path.read_bytes(), 0, []
    handle.load(folder)
    whole = _ledger(handle)
    for position in range(0, len(content), max(1, len(content) // 150)):
        path.write_bytes(content[:position] + bytes([content[position] ^ 16]) + content[position + 1 :])
        try:
            handle.load(folder)
            if _ledger(handle) != whole:
                wrong.append(f"byte {position} changed what was loaded")
        except laconic.StateError as error:
            refused += 1
            if path.name not in str(error):
                wrong.append(f"byte {position}: {error}")
    return refused, wrong


def test_a_flipped_bit_is_refused_or_touches_nothing(tmp_path: Path) -> None:
    run(save_after, 1, folder=str(tmp_path))
    ((refused, wrong),) = run(flip_bits, 1, folder=str(tmp_path))
    assert wrong == []
    assert refused > 75, "most of the file is content"


def die_while_saving(rank: int, folder: str, moment: str) -> None:
    model = ddp(toy())
    handle = laconic.attach(model, PLAN)
    train(model, rank, range(5))

    def die(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    if moment == "half written":
        write = torch.save

        def half(state: object, file: Any) -> None:
            write(state, file)
            file.truncate(file.tell() // 2)
            os.fsync = die  # type: ignore[assignment]

        torch.save = half  # type: ignore[assignment]
    elif moment == "before it is synced":
        os.fsync = die  # type: ignore[assignment]
    else:
        Path.replace = die  # type: ignore[assignment]
    handle.save(folder)


@pytest.mark.parametrize("moment", ["half written", "before it is synced", "before it is renamed"])
def test_a_kill_while_saving_leaves_the_old_file_whole(tmp_path: Path, moment: str) -> None:
    saved = run(save_after, 2, folder=str(tmp_path), steps=2)
    ended = outcomes(die_while_saving, 2, folder=str(tmp_path), moment=moment)
    assert [one.exitcode for one in ended] == [-signal.SIGKILL] * 2
    for old, (said, held, _, _) in zip(saved, run(load_elsewhere, 2, folder=str(tmp_path)), strict=True):
        assert said.startswith("resumed at step 2")
        assert bits(held.values()) == bits(old.values())
