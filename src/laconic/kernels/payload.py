"""How payloads are laid out: parts of whole multiples of eight bytes, so that each can be viewed as any number type."""

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


@cache
def factor_room(shape: tuple[int, int], dtype: torch.dtype) -> int:
    """Elements of a message that carry a factor; in bytes it has a step per column, and a byte per element."""
    length, rank = shape
    return length * rank if dtype is not torch.uint8 else aligned(4 * rank) + aligned(length * rank)
