"""One bit an element: decoding. Encoding needs sums in a fixed order and runs on the reference."""

import triton
import triton.language as tl
from torch import Tensor

from laconic.kernels.triton.launch import BLOCK, blocks


@triton.jit
def _unsign(bits, out, n, clear, set_, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    byte = tl.load(bits + at // 8, mask=at < n, other=0).to(tl.int32)
    up = ((byte >> (at % 8)) & 1) == 1
    tl.store(out + at, tl.load(out + at, mask=at < n, other=0.0) + tl.where(up, set_, clear), mask=at < n)


def unsign_add(bits: Tensor, clear: float, set_: float, out: Tensor, weight: float) -> None:
    if out.numel():
        _unsign[blocks(out.numel())](bits, out, out.numel(), clear * weight, set_ * weight, BLOCK)
