"""Policies: what the plan should be, from what all ranks know alike."""

from laconic.policies.policy import Policy
from laconic.policies.static import Static

__all__ = ["Policy", "Static"]
