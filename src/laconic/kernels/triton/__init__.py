"""The kernels for CUDA tensors: Triton for passes over every element, the reference on the device for the rest.

They have been proven equal to the reference in Triton's interpreter, on CPU tensors. They have not run on a GPU yet.
"""

from laconic.kernels.reference import *  # noqa: F403
from laconic.kernels.triton.dense import fold, narrow, settle, widen_add
from laconic.kernels.triton.quantize import dequantize_add, quantize, requantize
from laconic.kernels.triton.unsign import unsign_add

name = "triton"

__all__ = [
    "dequantize_add", "fold", "name", "narrow", "quantize", "requantize", "settle", "unsign_add", "widen_add",
]  # fmt: skip
