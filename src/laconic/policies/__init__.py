"""Policies: what the plan should be, from what all ranks know alike."""

from laconic.policies.accordion import Accordion
from laconic.policies.auto import Auto
from laconic.policies.espresso import Espresso
from laconic.policies.gravac import GraVAC
from laconic.policies.lgreco import LGreCo
from laconic.policies.policy import Policy, Proposal
from laconic.policies.static import Static

__all__ = ["Accordion", "Auto", "Espresso", "GraVAC", "LGreCo", "Policy", "Proposal", "Static"]
