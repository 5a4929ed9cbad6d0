"""One compressor, or one plan, for the whole run."""

from collections.abc import Sequence
from dataclasses import dataclass

from laconic.compressors import Dense
from laconic.exchange import Compressor
from laconic.layer import Layer
from laconic.plan import Plan
from laconic.policies.policy import Policy
from laconic.world import World

TINY = 1024  # elements below which a code's header and a kernel's call cost more than they save


def unsuited(compressor: Compressor, layer: Layer) -> str | None:
    """Why a layer stays dense under a compressor that is given for the whole model, or None.

    >>> unsuited(Dense(), Layer("bias", (4096,)))
    'one-dimensional'
    """
    if not layer.dtype.is_floating_point:
        return "not floating point"
    if len(layer.shape) < 2:
        return "one-dimensional"
    if layer.numel < TINY:
        return f"fewer than {TINY} elements"
    return compressor.unsuited(layer)


@dataclass(frozen=True)
class Static(Policy):
    """A compressor where it makes sense and Dense elsewhere, or exactly the plan that is given."""

    what: Compressor | Plan

    @property
    def lossless(self) -> bool:
        used = self.what.values() if isinstance(self.what, Plan) else [self.what]
        return all(compressor.lossless for compressor in used)

    def start(self, layers: Sequence[Layer], world: World) -> Plan:
        if isinstance(self.what, Plan):
            return self.what.resolve(layers)
        entries: dict[str, Compressor] = {}
        why = {}
        for layer in layers:
            reason = unsuited(self.what, layer)
            entries[layer.name] = self.what.for_layer(layer) if reason is None else Dense()
            if reason is not None and not isinstance(self.what, Dense):
                why[layer.name] = reason
        return Plan(entries, why)
