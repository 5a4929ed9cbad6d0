"""How payloads are laid out: parts of whole multiples of eight bytes, so that each can be viewed as any number type."""

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

PAGE = 64  # buckets of ternary elements that share a room, and are one thread's work


def aligned(nbytes: int) -> int:
    """Up to the next multiple of 8, and not 0."""
    return max(1, -(-nbytes // 8)) * 8


@cache  # asked for every layer in every step
def quantized_bytes(numel: int, bits: int, bucket: int) -> int:
    """The room for a layer's steps and codes."""
    return aligned(4 * -(-numel // bucket)) + aligned(-(-numel * bits // 8))


def steps_and_codes(payload: Tensor, numel: int, bits: int, bucket: int) -> tuple[Tensor, Tensor]:
    """Both parts, without the gaps behind them; of one payload, or of each row of several."""
    steps = 4 * -(-numel // bucket)
    split = aligned(steps)
    return payload[..., :steps].view(torch.float32), payload[..., split : split + -(-numel * bits // 8)]


@cache
def ternary_bytes(numel: int, bucket: int, each: int) -> int:
    """The room for a layer's buckets, `each` bytes a bucket, by pages (kernels/reference/ternary.py)."""
    pages, rest = divmod(-(-numel // bucket), PAGE)
    return pages * aligned(PAGE * each) + aligned(rest * each) if rest else max(8, pages * aligned(PAGE * each))


@dataclass(frozen=True)
class Form:
    """How a factor of a few columns travels: as floats of 32 or 16 bits, or as codes with scales by column and row."""

    dtype: torch.dtype
    bits: int  # an element

    @property
    def coded(self) -> bool:
        """Codes cannot be added up on the way."""
        return self.dtype is torch.uint8

    def room(self, length: int, rank: int) -> int:
        """Elements of a message that carry it."""
        return factor_bytes(length, rank, self.bits) if self.coded else length * rank


EXACT, BRAIN = Form(torch.float32, 32), Form(torch.bfloat16, 16)
IN_3_BITS, IN_4_BITS, IN_6_BITS, IN_8_BITS = (Form(torch.uint8, bits) for bits in (3, 4, 6, 8))


@cache
def factor_bytes(length: int, rank: int, bits: int) -> int:
    """The room for a factor's steps, shares and codes."""
    return aligned(4 * rank) + aligned(length) + aligned(-(-length * rank * bits // 8))
