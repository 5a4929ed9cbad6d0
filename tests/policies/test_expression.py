"""Policies as text."""

import pytest

from laconic import Accordion, GraVAC, InvalidConfig, LGreCo, Policy, PowerSGD, Quantize, Sign, Static, TopK
from laconic.lab.methods import Method
from laconic.policies.expression import parse

EVERY = (
    LGreCo(PowerSGD(rank=4)),
    LGreCo([Quantize(bits=4), Sign(), TopK(density=0.02)], warmup=0, squared=False),
    LGreCo(Accordion(low=PowerSGD(rank=4), high=PowerSGD(rank=1), eta=0.3), period=77),
    GraVAC(TopK(density=0.1), scaling="geometric", floor=0.9),
    Accordion(low=Quantize(bits=8), high=Quantize(bits=2)),
)


@pytest.mark.parametrize("policy", EVERY, ids=repr)
def test_what_a_policy_prints_makes_it_again(policy: Policy) -> None:
    assert repr(parse(repr(policy))) == repr(policy)
    assert vars(parse(repr(policy))).keys() == vars(policy).keys()
    assert Method.parse(repr(policy)).name == repr(policy)


def test_a_compressor_is_a_static_policy() -> None:
    assert parse("TopK(0.01)") == Static(TopK(density=0.01))


@pytest.mark.parametrize(
    "text", ["LGreCo", "LGreCo()", "LGreCo(Dense())", "GraVAC(TopK(), 3)", "Accordion(low=Sign())", "LGrecko(Sign())",
             "GraVAC(TopK(0.1), flour=0.7)", "[TopK()]", "3", "__import__('os')", "LGreCo(PowerSGD(rank=4), period=0)"],
)  # fmt: skip
def test_text_that_describes_no_policy_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfig):
        parse(text)
