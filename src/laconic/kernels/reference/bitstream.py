"""Integers of a few bits as a little-endian stream of bytes."""

import torch
from torch import Tensor


def pack_bits(codes: Tensor, bits: int, out: Tensor) -> None:
    """Write integer codes of `bits` bits into the bytes of `out`; what is left of them is zero."""
    stream = torch.zeros(out.numel() * 8, dtype=torch.uint8, device=codes.device)
    for bit in range(bits):
        stream[bit : codes.numel() * bits : bits] = codes >> bit & 1
    out.copy_(stream[0::8])
    for bit in range(1, 8):
        out |= stream[bit::8] << bit


def unpack_bits(packed: Tensor, bits: int, count: int) -> Tensor:
    """The first `count` codes of a stream, as int32."""
    stream = torch.empty(packed.numel() * 8, dtype=torch.uint8, device=packed.device)
    for bit in range(8):
        stream[bit::8] = packed >> bit & 1
    codes = torch.zeros(count, dtype=torch.int32, device=packed.device)
    for bit in range(bits):
        codes |= stream[bit : count * bits : bits].int() << bit
    return codes
