"""The kernels in plain torch: the specification that every other backend is held to, and what runs without them."""

from laconic.kernels.reference.adacomp import adacomp, unadacomp_add
from laconic.kernels.reference.bitstream import pack_bits, unpack_bits
from laconic.kernels.reference.cast import narrow, widen_add
from laconic.kernels.reference.fold import energy, fold, settle
from laconic.kernels.reference.indices import pack_indices, scatter_add, strata, take, unpack_indices
from laconic.kernels.reference.low_rank import (
    code_factor,
    product,
    sketch,
    sketch_back,
    subtract_product,
    sum_factors,
)
from laconic.kernels.reference.natural import natural, unnatural_add
from laconic.kernels.reference.quantize import dequantize_add, quantize, requantize
from laconic.kernels.reference.sign import majority, sign, unsign_add
from laconic.kernels.reference.statistics import quantize_errors, top_k_errors
from laconic.kernels.reference.sums import totals
from laconic.kernels.reference.ternary import ternary, unternary_add
from laconic.kernels.reference.topk import sampled_top_k, threshold, top_k
from laconic.kernels.reference.uniform import uniform

name = "reference"

__all__ = [
    "adacomp", "code_factor", "dequantize_add", "energy", "fold", "majority", "name", "narrow", "natural",
    "pack_bits", "pack_indices", "product", "quantize", "quantize_errors", "requantize", "sampled_top_k",
    "scatter_add", "settle", "sign", "sketch", "sketch_back", "strata", "subtract_product", "sum_factors", "take",
    "ternary", "threshold", "top_k", "top_k_errors", "totals", "unadacomp_add", "uniform", "unnatural_add",
    "unpack_bits", "unpack_indices", "unsign_add", "unternary_add", "widen_add",
]  # fmt: skip
