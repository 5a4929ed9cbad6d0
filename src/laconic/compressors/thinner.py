"""Compress the compressed: the same compressor with fewer elements, as GraVAC's multi-level compression needs it.

A top-k of a top-k is a top-k, and a random choice of a random choice is one, so a sparsifier's second level is itself
with a smaller density and costs nothing extra. Any other one-shot compressor gets a top-k in front. Its indices count:
half of the signs with their indices would be more than all of them.
"""

from math import log2

from laconic.compressors.cast import Cast
from laconic.compressors.codec import Codec
from laconic.compressors.natural import Natural
from laconic.compressors.quantize import Quantize
from laconic.compressors.randomk import RandomK
from laconic.compressors.routes import Route
from laconic.compressors.sign import Sign
from laconic.compressors.sparse import Chain
from laconic.compressors.ternary import Ternary
from laconic.compressors.topk import Threshold, TopK
from laconic.exchange import Compressor


def factor(compressor: Compressor) -> float | None:
    """GraVAC's CF, original over compressed size, indices and scales not counted; None where it is not one number.

    >>> factor(TopK(density=0.1)), factor(Chain(TopK(density=0.1), Sign()))
    (10.0, 320.0)
    """
    match compressor:
        case TopK(density=density) | Threshold(density=density) | RandomK(density=density):
            return 1 / density
        case Quantize(bits=bits) | Ternary(bits=bits):
            return 32 / bits
        case Sign():
            return 32.0
        case Natural():
            return 4.0
        case Cast():
            return 2.0
        case Chain(sparsifier=first, values=second):
            outer, inner = factor(first), factor(second)
            return None if outer is None or inner is None else outer * inner
        case Route():
            return factor(compressor.core)
    return None


def thinner(compressor: Compressor, times: float) -> Compressor:
    """The compressor at `times` its factor: a sparsifier with so many times fewer elements, another with fewer bytes.

    >>> str(thinner(TopK(density=0.1), 4)), str(thinner(Sign(), 4))
    ('TopK(density=0.025)', "Chain(TopK(density=0.0312), Sign(scale='mean'))")
    """
    if times == 1:
        return compressor
    match compressor:
        case TopK(density=density) | Threshold(density=density) | RandomK(density=density):
            return compressor.replace(density=float(f"{density / times:.6g}"))
        case Chain(sparsifier=first, values=second):
            return Chain(thinner(first, times), second)  # type: ignore[arg-type]
        case Route():
            return compressor.around(thinner(compressor.core, times))
        case Codec():
            bits = 32 / (factor(compressor) or 1)
            return Chain(TopK(density=float(f"{_affordable(bits, bits / times):.3g}")), compressor)
    raise AssertionError(f"{compressor} has no factor")


def _affordable(bits: float, budget: float) -> float:
    """The density at which values of so many bits and their Elias-Fano indices, 2 + log2(1 / density) bits, fit."""
    least, most = 1e-9, 1.0
    for _ in range(60):
        middle = (least + most) / 2
        least, most = (middle, most) if middle * (bits + 2 - log2(middle)) <= budget else (least, middle)
    return least
