"""Gradient compression for PyTorch that decides, per layer and while training goes on, how each gradient crosses the
network.

    model = DDP(model)
    handle = laconic.attach(model, laconic.TopK(density=0.01))
"""

from laconic.compressors import (
    AdaComp,
    ByMachine,
    Cast,
    Chain,
    Dense,
    Divided,
    Hierarchical,
    Natural,
    OnCpu,
    PowerSGD,
    Quantize,
    RandomK,
    Sign,
    Ternary,
    Threshold,
    TopK,
)
from laconic.errors import (
    CorruptPayload,
    Disagreement,
    ExchangeFailed,
    InvalidConfig,
    LaconicError,
    StateError,
    Unsupported,
)
from laconic.exchange import Compressor
from laconic.integrations.ddp import State, attach, hook
from laconic.integrations.handle import Handle
from laconic.layer import Layer
from laconic.plan import Plan
from laconic.policies import Accordion, Auto, Espresso, GraVAC, LGreCo, Policy, Proposal, Static
from laconic.stats import LayerStats, Stats, Table
from laconic.version import VERSION as __version__
from laconic.world import Scope, World

__all__ = [
    "Accordion", "AdaComp", "Auto", "ByMachine", "Cast", "Chain", "Compressor", "CorruptPayload", "Dense",
    "Disagreement", "Divided", "Espresso", "ExchangeFailed", "GraVAC", "Handle", "Hierarchical", "InvalidConfig",
    "LGreCo", "LaconicError", "Layer", "LayerStats", "Natural", "OnCpu", "Plan", "Policy", "PowerSGD", "Proposal",
    "Quantize", "RandomK", "Scope", "Sign", "State", "StateError", "Static", "Stats", "Table", "Ternary", "Threshold",
    "TopK", "Unsupported", "World", "__version__", "attach", "hook",
]  # fmt: skip
