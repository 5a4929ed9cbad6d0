"""The largest elements of every bucket as plus or minus one step, in a fraction of a bit an element."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from laconic import kernels
from laconic.compressors import check
from laconic.compressors.codec import Codec
from laconic.compressors.topk import rungs
from laconic.exchange import Lines
from laconic.kernels.energy import Energy
from laconic.kernels.payload import ternary_bytes
from laconic.kernels.reference.ternary import LEAST, LEVELS
from laconic.layer import Layer
from laconic.world import World

MOST = 2.0  # bits an element: beyond, `Quantize` leaves less


@dataclass(frozen=True)
class Ternary(Codec):
    """Each element as -1, 0 or 1 times its bucket's step, and where the others are, in `bits` bits an element in all.

    An element of half a step or more goes as a whole step; what that is too much by is taken back later. The step is
    the bucket's largest magnitude, and up to 31/16 of it where more would be sent than there is room for.

    >>> Ternary(bits=0.5).nbytes(1 << 20) * 8 / (1 << 20)
    0.5
    """

    bits: float = 0.5
    bucket: int = 512

    def __post_init__(self) -> None:
        check.whole("bucket", self.bucket, 64, 16384)
        check.number("bits", self.bits, 8 * LEAST / self.bucket, MOST)

    @property
    def each(self) -> int:
        """Bytes a bucket."""
        return int(self.bits * self.bucket / 8)

    def nbytes(self, numel: int, warm: Mapping[str, Tensor] | None = None) -> int:
        return ternary_bytes(numel, self.bucket, self.each)

    def encode_all(
        self, xs: Sequence[Tensor], residuals: Sequence[Tensor | None], payload: Tensor,
        rooms: Sequence[int], seeds: Sequence[int],
    ) -> Sequence[Energy]:  # fmt: skip
        return kernels.together(xs[0]).ternary(xs, residuals, payload, self.bucket, self.each)

    def decode_all(self, payloads: Tensor, outs: Sequence[Tensor], rooms: Sequence[int], weight: float) -> None:
        kernels.together(outs[0]).unternary(payloads, outs, self.bucket, self.each, weight)

    def lines(self, layers: Sequence[Layer], world: World) -> Lines | None:
        on = kernels.lines()
        return on and on.Ternaries([layer.numel for layer in layers], self.bucket, self.each)

    def encode(self, x: Tensor, payload: Tensor, residual: Tensor | None, seed: int) -> Energy:
        return kernels.of(x).ternary(x, residual, payload, self.bucket, self.each)

    def decode(self, payload: Tensor, out: Tensor, weight: float) -> None:
        kernels.of(out).unternary_add(payload, out, self.bucket, self.each, weight)

    def ladder(self, layer: Layer, low: float = 0.25, high: float = 4.0) -> Sequence["Ternary"]:
        fit = (bits for bits in rungs(self.bits, low, high, MOST) if bits >= 8 * LEAST / self.bucket)
        return tuple(self.replace(bits=bits) for bits in fit)

    def contraction(self, numel: int) -> float | None:
        # The largest of a bucket goes in every step, and is over by 15/16 of itself at most.
        return (1 - (1 - 1 / LEVELS) ** 2) / max(1, min(numel, self.bucket))
