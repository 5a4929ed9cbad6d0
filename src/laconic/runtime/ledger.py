"""The ledger: what each layer has not sent yet, and its compressor's warm state, under the layer's name.

It belongs to the layer and not to the compressor or the bucket, so that it survives a change of plan and a rebuild of
buckets. It is written only when a step is known to be good.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from laconic.errors import StateError
from laconic.layer import Layer
from laconic.plan import Plan
from laconic.world import World

State = Mapping[str, Mapping[str, Tensor]]  # layer, then "residual" or "warm.…"


@dataclass
class Account:
    """One layer's."""

    layer: Layer
    residual: Tensor | None = None  # flat; None while there is nothing
    warm: dict[str, Tensor] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        return self.residual.nbytes if self.residual is not None else 0

    def settle(
        self, left: Tensor | None, warm: dict[str, Tensor], dtype: torch.dtype, lender: Tensor | None = None
    ) -> None:
        """Write down what a good step left (None: nothing) and what its compressor remembers.

        Where `left` lies in the memory of a tensor that is about to be overwritten, the lender, that memory stays here
        and the lender has the old residual's: nothing is copied.
        """
        if left is None:
            self.residual = None
        elif lender is not None and self.residual is not None and self.residual.dtype is lender.dtype:
            kept = lender.data.view(-1)
            lender.data = self.residual.view(lender.shape)
            self.residual = kept
        elif self.residual is None:
            self.residual = left.flatten().to(dtype, copy=True)
        else:
            self.residual.copy_(left.view(-1))
        self.warm = warm


class Ledger:
    """Every layer's account."""

    def __init__(self, layers: Sequence[Layer], world: World, dtype: torch.dtype, seed: int) -> None:
        self.accounts = {layer.name: Account(layer) for layer in layers}
        self.dtype = dtype
        self._world, self._seed = world, seed

    def adopt(self, plan: Plan, before: Plan | None) -> None:
        """Warm state for the plan's compressors: kept where the compressor stays, handed on where it changes."""
        for name, account in self.accounts.items():
            if before is None or before[name] != plan[name]:
                rng = torch.Generator().manual_seed(_seed_of(name, self._seed))
                account.warm = plan[name].init(account.layer, self._world, rng, account.warm)

    def state_dict(self) -> dict[str, dict[str, Tensor]]:
        """Copies of everything, as tensors under plain names."""
        state = {}
        for name, account in self.accounts.items():
            entry = {f"warm.{key}": value.clone() for key, value in account.warm.items()}
            if account.residual is not None:
                entry["residual"] = account.residual.clone()
            if entry:
                state[name] = entry
        return state

    def check(self, state: State) -> None:
        """Raise StateError where a state does not fit these layers."""
        for name, entry in state.items():
            if name not in self.accounts:
                raise StateError(
                    f"the state has a layer {name!r} that this model has not: was it saved for another model?"
                )
            residual, numel = entry.get("residual"), self.accounts[name].layer.numel
            if residual is not None and residual.numel() != numel:
                raise StateError(
                    f"layer {name!r}: the saved residual has {residual.numel()} elements, the layer {numel}"
                )

    def load(self, states: Sequence[State], mine: Sequence[State]) -> None:
        """Take over the sum of my states' residuals, and the warm state, which all ranks share.

        A layer of which any rank has a residual gets one here too, if of zeros: ranks must look alike to each other.
        """
        for name, account in self.accounts.items():
            entries = [state[name] for state in states if name in state]
            account.residual = None
            if any("residual" in entry for entry in entries):
                account.residual = torch.zeros(account.layer.numel, dtype=self.dtype)
                for state in mine:
                    if "residual" in state.get(name, {}):
                        account.residual += state[name]["residual"].to(self.dtype)
            warm = entries[0] if entries else {}
            kept = {key.removeprefix("warm."): value.clone() for key, value in warm.items() if key != "residual"}
            account.warm = kept or account.warm


def _seed_of(name: str, seed: int) -> int:
    """A seed that depends on nothing but the layer's name and the run's seed."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{name}".encode()).digest()[:7], "little")
