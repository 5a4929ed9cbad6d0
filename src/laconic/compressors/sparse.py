"""Sparsifiers: a few elements, their indices coded, their values as they are or through a second codec.

Payload: count and seed (int64 each), the index code, the values. A sparsifier says which elements; `Chain` says how
their values travel; a sparsifier alone sends them in float32.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from laconic import kernels
from laconic.compressors.codec import Codec
from laconic.errors import CorruptPayload, InvalidConfig
from laconic.exchange import Compressor, mix
from laconic.kernels.energy import Energy
from laconic.kernels.index import code_bytes
from laconic.kernels.payload import aligned
from laconic.kernels.plausible import plausible
from laconic.layer import Layer

HEADER = 16


@dataclass(frozen=True)
class _Plain(Codec):
    """Values in float32."""

    def nbytes(self, numel: int, warm: Mapping[str, Tensor] | None = None) -> int:
        return aligned(4 * numel)

    def encode(self, x: Tensor, payload: Tensor, residual: Tensor | None, seed: int) -> Energy:
        payload.view(torch.float32)[: x.numel()] = x
        x.zero_()
        return 0.0

    def decode(self, payload: Tensor, out: Tensor, weight: float) -> None:
        values = payload.view(torch.float32)[: out.numel()]
        plausible(values)
        out.add_(values, alpha=weight)


class Sparsifier(Codec):
    """Sends at most `room(numel)` elements and leaves the others where they are."""

    coded: ClassVar[bool] = True  # indices travel; otherwise the seed is enough to find them again

    @abstractmethod
    def room(self, numel: int) -> int:
        """The most elements that are ever sent of `numel`."""

    @abstractmethod
    def pick(
        self, x: Tensor, residual: Tensor | None, seed: int, indices: Tensor, values: Tensor
    ) -> tuple[Energy, int]:
        """Move elements of x + residual into values; (energy, count)."""

    def selections(self, x: Tensor, ladder: Sequence["Sparsifier"]) -> dict["Sparsifier", Tensor]:
        """What each of a family would select of x, in order, where that is cheap to tell of many; otherwise nothing."""
        return {}

    def index_bytes(self, numel: int) -> int:
        """The size of the index code."""
        return aligned(code_bytes(numel, self.room(numel))) if self.coded else 0

    def nbytes(self, numel: int, warm: Mapping[str, Tensor] | None = None) -> int:
        return self.chained_bytes(_Plain(), numel)

    def encode(self, x: Tensor, payload: Tensor, residual: Tensor | None, seed: int) -> Energy:
        return self.encode_chained(_Plain(), x, payload, residual, seed)

    def decode(self, payload: Tensor, out: Tensor, weight: float) -> None:
        self.decode_chained(_Plain(), payload, out, weight)

    def chained_bytes(self, values: Codec, numel: int) -> int:
        """The payload's size when `values` carries the selected elements."""
        return HEADER + self.index_bytes(numel) + values.nbytes(self.room(numel))

    def encode_chained(self, codec: Codec, x: Tensor, payload: Tensor, residual: Tensor | None, seed: int) -> Energy:
        """Encode with the selected elements' values sent through `codec`; what it leaves goes back to its place."""
        ops, numel, room = kernels.of(x), x.numel(), self.room(x.numel())
        indices = torch.empty(room, dtype=torch.int32, device=x.device)
        values = torch.zeros(room, device=x.device)
        energy, count = self.pick(x, residual, seed, indices, values)
        payload[:HEADER].view(torch.int64).copy_(torch.tensor([count, seed]))
        split = HEADER + self.index_bytes(numel)
        if self.coded:
            size = code_bytes(numel, room)
            ops.pack_indices(indices[:count], numel, room, payload[HEADER : HEADER + size])
        codec.encode(values, payload[split:], None, mix(seed))  # or the second choice would follow the first
        if not isinstance(codec, _Plain):
            ops.scatter_add(indices[:count], values[:count], x, 1.0)
        return energy

    def decode_chained(self, codec: Codec, payload: Tensor, out: Tensor, weight: float) -> None:
        """Add what `encode_chained` wrote."""
        ops, numel, room = kernels.of(out), out.numel(), self.room(out.numel())
        count, seed = payload[:HEADER].view(torch.int64).tolist()
        if not 0 <= count <= room:
            raise CorruptPayload(f"{count} elements are announced where at most {room} of {numel} are ever sent")
        if not 0 <= seed < 1 << 62:
            raise CorruptPayload(f"a seed of {seed} is announced where none is negative or above 62 bits")
        indices = torch.empty(count, dtype=torch.int32, device=out.device)
        split = HEADER + self.index_bytes(numel)
        if self.coded:
            ops.unpack_indices(payload[HEADER : HEADER + code_bytes(numel, room)], numel, room, indices)
        elif count != room:
            raise CorruptPayload(f"{count} elements are announced where always {room} of {numel} are sent")
        else:
            ops.strata(numel, seed, indices)
        values = torch.zeros(room, device=out.device)
        codec.decode(payload[split:], values, 1.0)
        ops.scatter_add(indices, values[:count], out, weight)


@dataclass(frozen=True)
class Chain(Codec):
    """A sparsifier whose selected values a second codec takes; that one may be a chain again.

    >>> chain = Chain(sparsifier=TopK(density=0.01), values=Quantize(bits=4))  # doctest: +SKIP
    """

    sparsifier: Sparsifier
    values: Codec

    def __post_init__(self) -> None:
        if not isinstance(self.sparsifier, Sparsifier):
            raise InvalidConfig("sparsifier", self.sparsifier, "start a chain with TopK, Threshold or RandomK")
        if not isinstance(self.values, Codec) or self.values.variable:
            raise InvalidConfig("values", self.values, "end a chain with Quantize, Cast, Sign, Natural or a sparsifier")

    @property
    def random(self) -> bool:
        return self.sparsifier.random or self.values.random

    def nbytes(self, numel: int, warm: Mapping[str, Tensor] | None = None) -> int:
        return self.sparsifier.chained_bytes(self.values, numel)

    def encode(self, x: Tensor, payload: Tensor, residual: Tensor | None, seed: int) -> Energy:
        return self.sparsifier.encode_chained(self.values, x, payload, residual, seed)

    def decode(self, payload: Tensor, out: Tensor, weight: float) -> None:
        self.sparsifier.decode_chained(self.values, payload, out, weight)

    def ladder(self, layer: Layer, low: float = 0.25, high: float = 4.0) -> tuple["Chain", ...]:
        rungs = self.sparsifier.ladder(layer, low, high)
        return tuple(Chain(rung, self.values) for rung in rungs)  # type: ignore[arg-type]

    def errors(self, x: Tensor, ladder: Sequence[Compressor]) -> Tensor:
        """The sparsifier says what it leaves of x, and the second codec what it leaves of what was selected."""
        chains = [rung for rung in ladder if isinstance(rung, Chain)]
        made: dict[Sparsifier, Tensor] = {}
        if len(chains) == len(ladder):
            made = self.sparsifier.selections(x.flatten(), [rung.sparsifier for rung in chains])
        if not made:
            return super().errors(x, ladder)
        left = dict(zip(made, self.sparsifier.errors(x, list(made)).tolist(), strict=True))
        told = []
        for sparsifier, selected in made.items():
            codecs = [rung.values for rung in chains if rung.sparsifier == sparsifier]
            for codec, error in zip(codecs, codecs[0].errors(selected, codecs).tolist(), strict=True):
                told.append((Chain(sparsifier, codec), left[sparsifier] + error))
        known = dict(told)
        return torch.tensor([known[rung] for rung in chains], dtype=torch.float64)

    def contraction(self, numel: int) -> float | None:
        outer, inner = self.sparsifier.contraction(numel), self.values.contraction(self.sparsifier.room(numel))
        return None if outer is None or inner is None else outer * inner
