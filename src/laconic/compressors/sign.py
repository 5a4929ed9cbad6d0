"""One bit an element."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from laconic import kernels
from laconic.compressors import check
from laconic.compressors.codec import Codec
from laconic.kernels.energy import Energy
from laconic.kernels.payload import aligned
from laconic.kernels.plausible import plausible

HEADER = 8


@dataclass(frozen=True)
class Sign(Codec):
    """The signs, with one magnitude (`scale="mean"`, EF-signSGD, arXiv 1901.09847) or two (`scale="two"`, 1-bit SGD).

    >>> Sign().nbytes(1024) * 8 / 1024
    1.0625
    """

    scale: str = "mean"

    def __post_init__(self) -> None:
        check.one_of("scale", self.scale, ("mean", "two"))

    def nbytes(self, numel: int, warm: Mapping[str, Tensor] | None = None) -> int:
        return HEADER + aligned(-(-numel // 8))

    def encode(self, x: Tensor, payload: Tensor, residual: Tensor | None, seed: int) -> Energy:
        bits = payload[HEADER : HEADER + -(-x.numel() // 8)]
        energy, below, above = kernels.of(x).sign(x, residual, bits, self.scale == "two")
        payload[:HEADER].view(torch.float32).copy_(torch.tensor([below, above]))
        return energy

    def decode(self, payload: Tensor, out: Tensor, weight: float) -> None:
        plausible(payload[:HEADER].view(torch.float32))
        below, above = payload[:HEADER].view(torch.float32).tolist()
        kernels.of(out).unsign_add(payload[HEADER : HEADER + -(-out.numel() // 8)], below, above, out, weight)

    def contraction(self, numel: int) -> float | None:
        return 1 / max(1, numel)  # |x|_1^2 / (n |x|_2^2) of the energy goes, which is at least this
