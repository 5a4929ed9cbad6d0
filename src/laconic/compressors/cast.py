"""Half the bits: float16 or bfloat16."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from laconic import kernels
from laconic.compressors.codec import Codec
from laconic.errors import InvalidConfig
from laconic.exchange import Exchange, Leg, Message, Op, Voice
from laconic.kernels.energy import Energy
from laconic.kernels.payload import aligned
from laconic.layer import Layer
from laconic.world import World

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
NAMES: dict[object, str] = {
    "bf16": "bf16", "bfloat16": "bf16", torch.bfloat16: "bf16",
    "fp16": "fp16", "float16": "fp16", torch.float16: "fp16",
}  # fmt: skip


@dataclass(frozen=True)
class Cast(Codec):
    """Sum in 16 bits, with the rounding fed back into the next step.

    Values beyond float16's range are sent as its largest and the rest follows in later steps.

    >>> print(Cast())
    Cast(dtype='bf16')
    >>> Cast(dtype=torch.float16) == Cast(dtype="fp16")
    True
    """

    dtype: str | torch.dtype = "bf16"

    def __post_init__(self) -> None:
        if not isinstance(self.dtype, (str, torch.dtype)) or self.dtype not in NAMES:
            raise InvalidConfig("dtype", self.dtype, "choose 'bf16' or 'fp16' (or torch.bfloat16, torch.float16)")
        object.__setattr__(self, "dtype", NAMES[self.dtype])

    @property
    def wire(self) -> torch.dtype:
        """The dtype that travels."""
        return DTYPES[str(self.dtype)]

    def legs(self, layer: Layer, world: World) -> tuple[Leg, ...]:
        return (Leg(Op.SUM, world.scope, self.wire, layer.numel),)

    def chorus(self, voices: Sequence[Voice], world: World) -> Exchange:
        sizes = [voice.x.numel() for voice in voices]
        code = voices[0].memory.take(sum(sizes), self.wire, voices[0].x.device)
        for voice, own in zip(voices, torch.split(code, sizes), strict=True):
            x, memory = voice.x.view(-1), voice.memory
            memory.energy = kernels.of(x).narrow(x, memory.residual, own, 1 / world.size)
            if self.dtype == "fp16" and world.size > 1:
                _hold_back(own, x, world.size)
        total = yield Message(Op.SUM, world.scope, code)
        for voice, own in zip(voices, torch.split(total, sizes), strict=True):
            voice.out.view(-1).copy_(own)

    def nbytes(self, numel: int, warm: Mapping[str, Tensor] | None = None) -> int:
        return aligned(2 * numel)

    def encode(self, x: Tensor, payload: Tensor, residual: Tensor | None, seed: int) -> Energy:
        return kernels.of(x).narrow(x, residual, payload.view(self.wire)[: x.numel()], 1.0)

    def decode(self, payload: Tensor, out: Tensor, weight: float) -> None:
        kernels.of(out).widen_add(payload.view(self.wire)[: out.numel()], out, weight)

    def unsuited(self, layer: Layer) -> str | None:
        return "it has 16 bits already" if layer.dtype.itemsize <= 2 else None

    def contraction(self, numel: int) -> float | None:
        return 1 - 2.0**-16 if self.dtype == "bf16" else None  # half a unit of 8 bits; float16 may saturate


def _hold_back(code: Tensor, left: Tensor, size: int) -> None:
    """Keep so much that the sum over `size` ranks stays finite, whoever adds it up in whatever order.

    The bound is a multiple of the unit of float16's largest values (32), so a sum of bounds is exact, and rounding is
    monotone: no other sum is larger.
    """
    most = 65504 // (32 * size) * 32
    if code.numel() and float(code.abs().max()) > most:
        held = code.clamp(-most, most)
        left.add_(code.float() - held.float(), alpha=size)
        code.copy_(held)
