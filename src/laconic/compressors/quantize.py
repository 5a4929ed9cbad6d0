"""Few bits an element, with a scale per bucket (QSGD, arXiv 1610.02132; CGX, arXiv 2111.08617)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor

import torch
from torch import Tensor

from laconic import kernels
from laconic.compressors import check
from laconic.compressors.codec import Codec
from laconic.exchange import Compressor, Lines
from laconic.kernels.energy import Energy
from laconic.kernels.payload import quantized_bytes, steps_and_codes
from laconic.layer import Layer
from laconic.world import World


@dataclass(frozen=True)
class Quantize(Codec):
    """Uniform levels between -scale and +scale in every bucket.

    `scaling` is the bucket's largest magnitude ("max") or its norm ("l2"); `stochastic` rounds without bias.

    >>> Quantize(bits=4).nbytes(4096) * 8 / 4096
    4.0625
    """

    bits: int = 4
    bucket: int = 512
    scaling: str = "max"
    stochastic: bool = False

    def __post_init__(self) -> None:
        check.whole("bits", self.bits, 1, 8)
        check.whole("bucket", self.bucket, 8, 1 << 20)
        check.one_of("scaling", self.scaling, ("max", "l2"))
        check.flag("stochastic", self.stochastic)

    @property
    def random(self) -> bool:
        return self.stochastic

    def nbytes(self, numel: int, warm: Mapping[str, Tensor] | None = None) -> int:
        return quantized_bytes(numel, self.bits, self.bucket)

    def encode_all(
        self, xs: Sequence[Tensor], residuals: Sequence[Tensor | None], payload: Tensor,
        rooms: Sequence[int], seeds: Sequence[int],
    ) -> Sequence[Energy]:  # fmt: skip
        on = kernels.together(xs[0])
        return on.quantize(xs, residuals, payload, self.bits, self.bucket, self.scaling == "l2", seeds)

    def decode_all(self, payloads: Tensor, outs: Sequence[Tensor], rooms: Sequence[int], weight: float) -> None:
        kernels.together(outs[0]).dequantize(payloads, outs, self.bits, self.bucket, weight)

    def lines(self, layers: Sequence[Layer], world: World) -> Lines | None:
        on = kernels.lines()
        if on is None or self.stochastic:
            return None
        made: Lines = on.Quantized([layer.numel for layer in layers], self.bits, self.bucket, self.scaling == "l2")
        return made

    def encode(self, x: Tensor, payload: Tensor, residual: Tensor | None, seed: int) -> Energy:
        steps, codes = steps_and_codes(payload, x.numel(), self.bits, self.bucket)
        return kernels.of(x).quantize(
            x, residual, codes, steps, self.bits, self.bucket, self.scaling == "l2", seed if self.stochastic else None
        )

    def decode(self, payload: Tensor, out: Tensor, weight: float) -> None:
        steps, codes = steps_and_codes(payload, out.numel(), self.bits, self.bucket)
        kernels.of(out).dequantize_add(codes, steps, out, self.bits, self.bucket, weight)

    def recode(self, payloads: Tensor, x: Tensor, payload: Tensor, seed: int) -> None:
        if x.numel() == 0:
            return
        steps, codes = steps_and_codes(payload, x.numel(), self.bits, self.bucket)
        many_steps, many_codes = steps_and_codes(payloads, x.numel(), self.bits, self.bucket)
        kernels.of(x).requantize(
            many_codes, many_steps, x, codes, steps, self.bits, self.bucket, self.scaling == "l2",
            seed if self.stochastic else None,
        )  # fmt: skip

    def ladder(self, layer: Layer, low: float = 0.25, high: float = 4.0) -> Sequence["Quantize"]:
        most, least = min(8, floor(high * self.bits)), max(1, ceil(low * self.bits))
        return tuple(self.replace(bits=bits) for bits in range(most, least - 1, -1))

    def errors(self, x: Tensor, ladder: Sequence[Compressor]) -> Tensor:
        if self.stochastic or any(rung != self.replace(bits=getattr(rung, "bits", 0) or 1) for rung in ladder):
            return super().errors(x, ladder)
        every = kernels.of(x).quantize_errors(x.flatten(), self.bucket, self.scaling == "l2")
        return torch.tensor([every[rung.bits - 1] for rung in ladder], dtype=torch.float64)  # type: ignore[attr-defined]

    def contraction(self, numel: int) -> float | None:
        if self.stochastic:
            return None
        # A level at zero means that no element grows; under "max" the largest of a bucket is exact; one bit is a sign.
        exact = self.scaling == "max" or self.bits == 1
        return 1 / max(1, min(numel, self.bucket)) if exact else 0.0

    def variance(self, numel: int) -> float | None:
        """Of the unbiased form: E|Q(x) - x|^2 <= variance |x|^2 (QSGD's bound, per bucket). None: biased."""
        if not self.stochastic:
            return None
        levels, n = max(1, 2 ** (self.bits - 1) - 1), max(1, min(numel, self.bucket))
        return n / levels**2 if self.bits > 1 else float(n)
