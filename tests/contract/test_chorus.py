"""Layers that hold one conversation say, leave and receive what each would alone."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from laconic.comm.loopback import Loopback, converse
from laconic.exchange import Choral, Memory, Voice
from laconic.layer import Layer
from tests.contract.conversation import dirty, gradients
from tests.contract.members import MEMBERS

LAYERS = (Layer("a", (40, 24)), Layer("b", (24, 16)), Layer("c", (17, 33)))
CHORAL = [member for member in MEMBERS if isinstance(member, Choral) and member.joins]
Told = list[list[tuple[Tensor, Tensor, dict[str, Tensor], float]]]  # by rank and layer: mean, leftover, warm, energy


def played(member: Choral, size: int, steps: int, groups: Sequence[Sequence[Layer]]) -> Told:
    """Some steps in which the layers of each group hold a conversation together."""
    comms = Loopback.ranks(size)
    rng = torch.Generator().manual_seed
    made = [{layer: member.init(layer, c.world, rng(1), {}) for layer in LAYERS} for c in comms]
    left: list[dict[Layer, Tensor | None]] = [dict.fromkeys(LAYERS) for _ in comms]
    told: Told = []
    for step in range(steps):
        drawn = {layer: gradients(layer, size, 10 * step + index) for index, layer in enumerate(LAYERS)}
        voices = [
            {
                layer: Voice(
                    drawn[layer][rank].clone(), torch.full(layer.shape, torch.nan),
                    Memory(left[rank][layer], dict(made[rank][layer]), take=dirty),
                )
                for layer in LAYERS
            }
            for rank in range(size)
        ]  # fmt: skip
        for group in groups:
            converse(
                [member.chorus([own[layer] for layer in group], c.world) for own, c in zip(voices, comms, strict=True)],
                comms,
            )
        for rank, own in enumerate(voices):
            left[rank] = {layer: own[layer].x.flatten().clone() for layer in LAYERS}
            made[rank] = {layer: own[layer].memory.warm for layer in LAYERS}
        told = [
            [(own[k].out, own[k].x, own[k].memory.warm, float(own[k].memory.energy)) for k in LAYERS] for own in voices
        ]
    return told


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("member", CHORAL, ids=str)
def test_together_they_say_what_each_would_alone(member: Choral, size: int) -> None:
    alone = played(member, size, 3, [[layer] for layer in LAYERS])
    together = played(member, size, 3, [LAYERS])
    for mine, ours in zip(alone, together, strict=True):
        for (mean, left, warm, energy), (same_mean, same_left, same_warm, same_energy) in zip(mine, ours, strict=True):
            assert torch.equal(mean, same_mean)
            assert torch.equal(left, same_left)
            assert energy == same_energy
            assert warm.keys() == same_warm.keys()
            assert all(torch.equal(warm[key], same_warm[key]) for key in warm)


def test_most_of_the_menu_joins_in() -> None:
    assert {"Cast", "Quantize", "PowerSGD", "AdaComp", "Sign", "Chain"} <= {type(member).__name__ for member in CHORAL}
