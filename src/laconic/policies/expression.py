"""Policies as text, read back without running anything: for the command line, races and records."""

from collections.abc import Mapping

from laconic.compressors import expression
from laconic.errors import InvalidConfig
from laconic.exchange import Compressor
from laconic.policies.accordion import Accordion
from laconic.policies.auto import Auto
from laconic.policies.espresso import Espresso
from laconic.policies.gravac import GraVAC
from laconic.policies.lgreco import LGreCo
from laconic.policies.policy import Policy
from laconic.policies.static import Static

POLICIES = (LGreCo, GraVAC, Accordion, Auto, Espresso)
NAMES: Mapping[str, type] = {**expression.NAMES, **{policy.__name__: policy for policy in POLICIES}}


def parse(text: str, key: str = "policy") -> Policy:
    """The policy that an expression describes, or a compressor as one; `repr` of an adaptive policy is its inverse.

    >>> parse("LGreCo(PowerSGD(rank=4), warmup=100)")
    LGreCo(PowerSGD(rank=4), warmup=100)
    >>> parse("LGreCo([Sign(), TopK(0.01)], squared=False)").base
    [Sign(scale='mean'), TopK(density=0.01, selection='exact')]
    """
    made = expression.build(text, NAMES, key)
    if isinstance(made, Policy):
        return made
    if isinstance(made, Compressor):
        return Static(made)
    raise InvalidConfig(key, text, f"start with one of {', '.join(NAMES)}")
