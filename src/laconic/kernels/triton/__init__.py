"""The kernels for CUDA tensors, in Triton. Where torch's own operators are as good, the reference runs on the device:
index codes, ternary elements, AdaComp's decoder, top-k's rungs (a sort), and PowerSGD's products.

They have been proven equal to the reference in Triton's interpreter, on CPU tensors. They have not run on a GPU yet.
"""

from laconic.kernels.reference import *  # noqa: F403
from laconic.kernels.triton.adacomp import adacomp
from laconic.kernels.triton.dense import energy, fold, narrow, settle, widen_add
from laconic.kernels.triton.natural import natural, unnatural_add
from laconic.kernels.triton.quantize import dequantize_add, quantize, quantize_errors, requantize
from laconic.kernels.triton.select import sampled_top_k, scatter_add, strata, take, threshold, top_k
from laconic.kernels.triton.sign import majority, sign, unsign_add

name = "triton"

__all__ = [
    "adacomp", "dequantize_add", "energy", "fold", "majority", "name", "narrow", "natural", "quantize",
    "quantize_errors", "requantize", "sampled_top_k", "scatter_add", "settle", "sign", "strata", "take", "threshold",
    "top_k", "unnatural_add", "unsign_add", "widen_add",
]  # fmt: skip
