"""What competes in a race: plain DDP, PyTorch's own hooks, no communication at all (the limit), and laconic."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

from laconic.compressors.expression import parse as parse_compressor
from laconic.errors import InvalidConfig
from laconic.exchange import Compressor
from laconic.policies import Static
from laconic.policies.expression import parse as parse_policy

_PLAIN = {
    "dense": "plain DDP, 32-bit gradients",
    "fp16": "PyTorch's fp16 hook",
    "noop": "no communication: the limit",
    "auto": "laconic, left to decide",
}
_PROBE, _PLAN = "probe", "plan"
_POWERSGD = "torch-powersgd"


@dataclass(frozen=True)
class Method:
    """One way for gradients to cross the network, by the name it races under.

    >>> Method.parse("torch-powersgd:4").summary
    "PyTorch's PowerSGD hook, rank 4"
    """

    name: str

    @classmethod
    def parse(cls, text: str) -> "Method":
        text = text.strip()
        kind, _, rank = text.partition(":")
        if text in _PLAIN:
            return cls(text)
        if kind == _PROBE:
            return cls(":".join([_PROBE, "+".join(str(c) for c in cls(text).probes)]))
        if kind == _PLAN:
            return cls(text)
        if kind == _POWERSGD:
            if not rank.isdecimal() or not 1 <= int(rank) <= 1024:
                raise InvalidConfig("methods", text, "give a rank, as in torch-powersgd:4")
            return cls(text)
        if text.replace("-", "").isidentifier() and text.islower():
            known = ", ".join([*_PLAIN, "torch-powersgd:RANK"])
            raise InvalidConfig(
                "methods", text, f"choose from {known}, or write a compressor or policy such as TopK(density=0.01)"
            )
        policy = parse_policy(text, "methods")
        return cls(str(policy.what) if isinstance(policy, Static) else repr(policy))

    @property
    def summary(self) -> str:
        if self.name.startswith(_POWERSGD):
            return f"PyTorch's PowerSGD hook, rank {self.name.partition(':')[2]}"
        if self.name in _PLAIN:
            return _PLAIN[self.name]
        if self.probes:
            return "no communication; measures what a prediction needs"
        if self.name.startswith(f"{_PLAN}:"):
            return "laconic, the plan of a file"
        fixed = isinstance(parse_policy(self.name), Static)
        return "laconic, one compressor for all layers" if fixed else "laconic, adapting while it trains"

    @property
    def probes(self) -> tuple[Compressor, ...]:
        """Compressors whose costs this method measures while it trains without communication: "probe:A+B"."""
        kind, _, listed = self.name.partition(":")
        return tuple(parse_compressor(part, "methods") for part in listed.split("+")) if kind == _PROBE else ()

    @property
    def ours(self) -> bool:
        other = self.name in _PLAIN or self.name.startswith(_POWERSGD) or bool(self.probes)
        return self.name == "auto" or not other

    @property
    def trains_together(self) -> bool:
        """Whether the ranks' gradients meet at all: without it a loss says nothing about the method."""
        return self.name != "noop" and not self.probes

    @property
    def bucket_megabytes(self) -> float | None:
        """DDP's bucket size. PyTorch's PowerSGD aborts or hangs on gloo with several buckets: it gets all in one."""
        return 10_000.0 if self.name.startswith(_POWERSGD) else None

    def install(self, model: DistributedDataParallel, record: str | None) -> Any:
        """Make `model` exchange gradients this way; laconic's handle where there is one."""
        if self.ours:
            import laconic

            kind, _, file = self.name.partition(":")
            what = None if self.name == "auto" else file if kind == _PLAN else parse_policy(self.name)
            return laconic.attach(model, what, record=record)
        if not self.trains_together:
            model.register_comm_hook(None, _keep_local)
        elif self.name == "fp16":
            model.register_comm_hook(None, default_hooks.fp16_compress_hook)
        elif self.name.startswith(_POWERSGD):
            from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

            rank = int(self.name.partition(":")[2])
            # Compression begins at the earliest step that the hook allows; its default of 1000 would never be reached.
            state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=rank, start_powerSGD_iter=2)
            model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        return None

    def dense_bytes(self, elements: int, world: int) -> int | None:
        """What one rank sends in a step by arithmetic, for the methods where a formula says it: a ring all-reduce."""
        width = {"dense": 4, "fp16": 2, "noop": 0}.get(self.name)
        return None if width is None else round(2 * (world - 1) / world * elements * width)


def _keep_local(
    state: None,
    bucket: dist.GradBucket,  # type: ignore[name-defined]  # torch has no stub for it
) -> torch.futures.Future[torch.Tensor]:
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


def parse_methods(text: str | Sequence[str]) -> tuple[Method, ...]:
    """Methods separated by semicolons, each of them once.

    >>> [method.name for method in parse_methods("dense; TopK(0.01)")]
    ['dense', 'TopK(density=0.01)']
    """
    parts = text.split(";") if isinstance(text, str) else text
    methods = tuple(Method.parse(part) for part in parts if part.strip())
    if not methods or len(set(methods)) != len(methods):
        raise InvalidConfig("methods", text, 'name each method once, separated by ";", as in "dense;fp16;auto"')
    return methods
