"""Characters to predict: the Python standard library's own source by default, or a text file."""

import sysconfig
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from laconic.errors import InvalidConfig

VOCABULARY = 96  # newline and the printable ASCII characters; anything else reads as a question mark
_SIZE = 1_200_000


class Text:
    """Windows of `length` characters and the same windows one further; the last tenth is held out."""

    def __init__(self, path: str | None, length: int) -> None:
        self.length = length
        codes = _codes(_read(path) if path else _standard_library())
        if len(codes) < 20 * (length + 1):
            raise InvalidConfig("data", path, f"give a text of at least {20 * (length + 1)} characters")
        cut = len(codes) * 9 // 10
        self._train, self._test = codes[:cut], codes[cut:]

    def batches(self, size: int, rank: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        draw = torch.Generator().manual_seed(seed * 1009 + rank)
        while True:
            starts = torch.randint(len(self._train) - self.length - 1, (size,), generator=draw)
            yield self._windows(self._train, starts)

    def held_out(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        draw = torch.Generator().manual_seed(0)
        for _ in range(max(1, 128 // size)):
            starts = torch.randint(len(self._test) - self.length - 1, (size,), generator=draw)
            yield self._windows(self._test, starts)

    def _windows(self, codes: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
        windows = codes[starts[:, None] + torch.arange(self.length + 1)].long()
        return windows[:, :-1], windows[:, 1:]


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InvalidConfig("data", path, f"give a readable text file ({error.strerror})") from None


@lru_cache(maxsize=1)
def _standard_library() -> bytes:
    """Source files in alphabetical order, each cut to the same share so that held-out text is of the same kind."""
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    return b"\n".join(file.read_bytes()[:15_000] for file in files)[:_SIZE]


def _codes(text: bytes) -> Tensor:
    codes = torch.frombuffer(bytearray(text), dtype=torch.uint8).to(torch.int16)
    newline, printable = codes == 10, (codes >= 32) & (codes < 127)
    return torch.where(newline, 95, torch.where(printable, codes - 32, ord("?") - 32)).to(torch.uint8)
