"""Every compressor and route. To add one: a file here, a name in FAMILIES, an entry in docs/compressors.md."""

from laconic.compressors.adacomp import AdaComp
from laconic.compressors.by_machine import ByMachine
from laconic.compressors.cast import Cast
from laconic.compressors.codec import Codec
from laconic.compressors.dense import Dense
from laconic.compressors.natural import Natural
from laconic.compressors.powersgd import PowerSGD
from laconic.compressors.quantize import Quantize
from laconic.compressors.randomk import RandomK
from laconic.compressors.routes import Divided, Hierarchical, OnCpu
from laconic.compressors.sign import Sign
from laconic.compressors.sparse import Chain, Sparsifier
from laconic.compressors.ternary import Ternary
from laconic.compressors.topk import Threshold, TopK

FAMILIES = (
    Dense, Cast, Quantize, TopK, Threshold, RandomK, Sign, Natural, PowerSGD, AdaComp, Ternary,
    Chain, Divided, Hierarchical, ByMachine, OnCpu,
)  # fmt: skip

__all__ = [
    "FAMILIES", "AdaComp", "ByMachine", "Cast", "Chain", "Codec", "Dense", "Divided", "Hierarchical", "Natural",
    "OnCpu", "PowerSGD", "Quantize", "RandomK", "Sign", "Sparsifier", "Ternary", "Threshold", "TopK",
]  # fmt: skip
