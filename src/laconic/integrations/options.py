"""What can be chosen at attach: one default in one place."""

from dataclasses import dataclass
from pathlib import Path

import torch

from laconic.compressors import check
from laconic.control.record import Sink
from laconic.errors import InvalidConfig
from laconic.exchange import Compressor
from laconic.plan import Plan
from laconic.policies import Auto, Policy, Static
from laconic.policies.expression import parse


@dataclass(frozen=True)
class Options:
    """`residual_dtype`: float32, or bfloat16 for half the memory. `commit`: see runtime.Engine. `seed`: of everything
    random, alike on all ranks. `node_size`: ranks on each machine; None asks torchrun. `lanes`: the most rounds that a
    later plan may need; None takes what the policy asks for. `record`: a JSONL file. `metrics`: an object with
    `add_scalar`, or a function that takes each event. `optimizer`: whose learning rate policies may follow; None finds
    the one that steps these parameters, if it is torch's."""

    residual_dtype: torch.dtype = torch.float32
    commit: str = "step"
    seed: int = 0
    node_size: int | None = None
    lanes: int | None = None
    record: str | Path | None = None
    metrics: Sink | None = None
    optimizer: object | None = None

    def __post_init__(self) -> None:
        if self.residual_dtype not in (torch.float32, torch.bfloat16):
            raise InvalidConfig("residual_dtype", self.residual_dtype, "choose torch.float32 or torch.bfloat16")
        if self.commit not in ("step", "bucket"):
            raise InvalidConfig("commit", self.commit, "choose 'step' or 'bucket'")
        check.whole("seed", self.seed, -(1 << 63), (1 << 63) - 1)
        if self.node_size is not None:
            check.whole("node_size", self.node_size, 1, 1 << 20)
        if self.lanes is not None:
            check.whole("lanes", self.lanes, 1, 16)


def as_policy(what: object) -> Policy:
    """A compressor, a policy, a plan, a plan file or an expression, as a policy."""
    match what:
        case None:
            return Auto()
        case Policy():
            return what
        case Compressor() | Plan():
            return Static(what)
        case Path():
            return Static(Plan.load(what))
        case str() if "(" in what or what.isidentifier():
            return parse(what, "what")
        case str():
            return Static(Plan.load(what))
        case _:
            raise InvalidConfig("what", what, "give a compressor, a policy, a Plan or the path of a plan file")
