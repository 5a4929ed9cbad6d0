"""`exchange.Lines` in C++: what layers say together, by address.

`native_together` without a tensor made or looked at. In a step each such operation finds the caches full of backward's
matrices, and costs as much as some thousand elements of arithmetic (docs/performance.md). Whoever calls keeps the
memory, and has looked at shapes and types beforehand.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from laconic.kernels import _native, native
from laconic.kernels.native_together import FORMS, implausible_codes, implausible_factors
from laconic.kernels.payload import Form, quantized_bytes, ternary_bytes
from laconic.kernels.reference.ternary import misspelled

Warm = dict[str, Tensor]


def _heard(reply: Tensor, at: int) -> tuple[int, int, int]:
    """Where the first row's part begins, how many rows there are, and how many bytes apart."""
    if reply.dim() == 1:
        return reply.data_ptr() + at, 1, 0
    return reply.data_ptr() + at, reply.shape[0], reply.stride(0) * reply.element_size()


def store(values: list[float], at: int) -> None:
    """Floats side by side."""
    _native.store(values, at)


def add_up(reply: Tensor, at: int, count: int) -> list[float]:
    """The sums of the rows' floats."""
    return _native.add_rows(*_heard(reply, at), count)


def lay_weighed(places: list[int], sizes: list[int], weight: float, at: int, room: int) -> None:
    """Floats times `weight` side by side, and zeros behind them; sizes are in bytes."""
    _native.lay_weighed(places, sizes, weight, at, room)


def spread_sum(reply: Tensor, at: int, places: list[int], sizes: list[int]) -> bool:
    """The sum of the rows' floats into these places, and whether all of it is finite."""
    return _native.spread_sum(*_heard(reply, at), places, sizes)


class Quantized:
    """Layers in codes of few bits, rounded to the nearest."""

    def __init__(self, sizes: Sequence[int], bits: int, bucket: int, l2: bool) -> None:
        self._sizes, self._how = list(sizes), (bits, bucket, l2)
        self.rooms = (sum(quantized_bytes(n, bits, bucket) for n in sizes),)

    def say(self, xs: list[int], residuals: list[int], warm: Sequence[Warm], message: int) -> list[float]:
        threads = torch.get_num_threads()
        return _native.quantize_all(xs, residuals, self._sizes, message, *self._how, (), threads)

    def hear(self, reply: Tensor, at: int, outs: list[int], weight: float) -> None:
        bits, bucket, _ = self._how
        heard, threads = _heard(reply, at), torch.get_num_threads()
        if not _native.dequantize_all(*heard, outs, self._sizes, bits, bucket, weight, threads):
            raise implausible_codes(reply[:, at : at + self.rooms[0]], self._sizes, bits, bucket)

    def remembered(self, warm: Sequence[Warm]) -> Sequence[Warm]:
        return warm


class Ternaries:
    """Layers as elements of -1, 0 and 1."""

    def __init__(self, sizes: Sequence[int], bucket: int, each: int) -> None:
        self._sizes, self._bucket, self._each = list(sizes), bucket, each
        self.rooms = (sum(ternary_bytes(n, bucket, each) for n in sizes),)

    def say(self, xs: list[int], residuals: list[int], warm: Sequence[Warm], message: int) -> list[float]:
        threads = torch.get_num_threads()
        return _native.ternary_all(xs, residuals, self._sizes, message, self._bucket, self._each, threads)

    def hear(self, reply: Tensor, at: int, outs: list[int], weight: float) -> None:
        heard, threads = _heard(reply, at), torch.get_num_threads()
        if not _native.unternary_all(*heard, outs, self._sizes, self._bucket, self._each, weight, threads):
            raise misspelled(sum(self._sizes), self._bucket)

    def remembered(self, warm: Sequence[Warm]) -> Sequence[Warm]:
        return warm


class LowRank:
    """Matrices as two factors each (PowerSGD): rows, columns and rank of each, and how the factors travel."""

    def __init__(self, shapes: Sequence[tuple[int, int, int]], forms: tuple[Form, Form]) -> None:
        self._rows, self._columns, self._ranks = (list(each) for each in zip(*shapes, strict=True))
        self._forms, (down, across) = forms, forms
        self._down, self._across = FORMS[down], FORMS[across]
        self._lengths = list(map(min, self._rows, self._columns)), list(map(max, self._rows, self._columns))
        shorter, longer = (list(zip(lengths, self._ranks, strict=True)) for lengths in self._lengths)
        self.rooms = (sum(down.room(*shape) for shape in shorter), sum(across.room(*shape) for shape in longer))
        sizes = [length * rank for length, rank in shorter]
        self._held = torch.split(torch.empty(sum(sizes)), sizes)  # bases, from round to round
        self._ps = [p.data_ptr() for p in self._held]
        # The factors that stay warm: this step's and those of the step before, by turns.
        self._own = [[torch.empty(length, rank) for length, rank in longer] for _ in range(2)]
        self._at = [[q.data_ptr() for q in own] for own in self._own]
        self._turn, self._xs = 0, [0]

    @staticmethod
    def fits(shapes: Sequence[tuple[int, int, int]]) -> bool:
        """Whether these are for the compiled products, as `native_together` decides it."""
        return all(rank <= native.MOST_RANK and columns >= native.FEWEST_COLUMNS for _, columns, rank in shapes)

    def say(self, xs: list[int], residuals: list[int], warm: Sequence[Warm], message: int) -> list[float]:
        qs = [one["q"].data_ptr() for one in warm]
        self._turn = int(qs[0] == self._at[0][0])
        self._xs = xs
        return _native.sketch_all(
            self._down, xs, residuals, self._rows, self._columns, self._ranks, qs, message, torch.get_num_threads()
        )

    def answer(self, reply: Tensor, at: int, message: int) -> None:
        heard, threads = _heard(reply, at), torch.get_num_threads()
        if not _native.turn_all(
            self._down, self._across, *heard, self._xs, self._rows, self._columns, self._ranks, self._ps,
            self._at[self._turn], message, threads,
        ):  # fmt: skip
            raise self._refused(reply, at, 0)

    def leave(self) -> None:
        _native.leave_all(
            self._xs, self._rows, self._columns, self._ranks, self._ps, self._at[self._turn], torch.get_num_threads()
        )

    def hear(self, reply: Tensor, at: int, outs: list[int], weight: float) -> None:
        heard, threads = _heard(reply, at), torch.get_num_threads()
        if not _native.product_all(
            self._across, *heard, outs, self._rows, self._columns, self._ranks, self._ps, self._at[self._turn], weight,
            threads,
        ):  # fmt: skip
            raise self._refused(reply, at, 1)

    def remembered(self, warm: Sequence[Warm]) -> Sequence[Warm]:
        return [{**one, "q": q} for one, q in zip(warm, self._own[self._turn], strict=True)]

    def _refused(self, reply: Tensor, at: int, which: int) -> Exception:
        said = reply[:, at : at + self.rooms[which]]
        return implausible_factors(said, self._lengths[which], self._ranks, self._forms[which])
