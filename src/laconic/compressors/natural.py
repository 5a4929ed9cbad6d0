"""Powers of two, rounded without bias (natural compression, arXiv 1905.10988)."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from laconic import kernels
from laconic.compressors.codec import Codec
from laconic.errors import CorruptPayload
from laconic.kernels.energy import Energy
from laconic.kernels.payload import aligned

HEADER = 8
LEAST, MOST = -148, 128  # exponents of float32, rounded up


@dataclass(frozen=True)
class Natural(Codec):
    """A sign and seven bits of exponent below the layer's largest: a byte an element."""

    @property
    def random(self) -> bool:
        return True

    def nbytes(self, numel: int, warm: Mapping[str, Tensor] | None = None) -> int:
        return HEADER + aligned(numel)

    def encode(self, x: Tensor, payload: Tensor, residual: Tensor | None, seed: int) -> Energy:
        energy, exponent = kernels.of(x).natural(x, residual, payload[HEADER : HEADER + x.numel()], seed)
        payload[:HEADER].view(torch.int64).fill_(exponent)
        return energy

    def decode(self, payload: Tensor, out: Tensor, weight: float) -> None:
        exponent = int(payload[:HEADER].view(torch.int64))
        if not LEAST <= exponent <= MOST:
            raise CorruptPayload(f"an exponent of {exponent} is announced where {LEAST} to {MOST} are possible")
        kernels.of(out).unnatural_add(payload[HEADER : HEADER + out.numel()], exponent, out, weight)

    def variance(self, numel: int) -> float | None:
        """E|C(x) - x|^2 <= |x|^2 / 8 (its theorem 1)."""
        return 1 / 8
