"""Low rank between machines of several ranks: factors are added up inside a machine before any is coded."""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from laconic import kernels
from laconic.compressors.powersgd import PowerSGD, as_matrix
from laconic.compressors.routes import Route
from laconic.errors import InvalidConfig
from laconic.exchange import Compressor, Exchange, Leg, Memory, Message, Op
from laconic.kernels.payload import Form
from laconic.kernels.together import of_unit_size, orthonormal
from laconic.layer import Layer
from laconic.world import World


@dataclass(frozen=True)
class ByMachine(Route):
    """Each of PowerSGD's two sums in three rounds: inside the machine, then every rank its share of the rows between
    machines, in codes, then inside again. A link carries the factors once, where everyone's codes to everyone would
    cross it as often as there are pairs of ranks.

    >>> [leg.numel for leg in ByMachine(PowerSGD(4, "int8")).legs(Layer("w", (100, 50)), World(size=4, node_size=2))]
    [200, 152, 100, 400, 272, 200]
    """

    compressor: PowerSGD

    def __post_init__(self) -> None:
        if not isinstance(self.compressor, PowerSGD) or not self.compressor.coded:
            raise InvalidConfig("compressor", self.compressor, 'give PowerSGD with dtype="int8", "int4" or "int3"')

    @property
    def core(self) -> PowerSGD:
        return self.compressor

    def around(self, core: Compressor) -> "ByMachine":
        assert isinstance(core, PowerSGD)
        return ByMachine(core)

    def legs(self, layer: Layer, world: World) -> tuple[Leg, ...]:
        if not world.tiered:
            return self.core.legs(layer, world)
        inside, across = world.inside(), world.across()
        rows, columns, rank = self.core.shape(layer)
        made: list[Leg] = []
        for form, length in zip(self.core.forms, sorted((rows, columns)), strict=True):
            share = -(-length // inside.size)
            made += [
                Leg(Op.SCATTER, inside.scope, torch.float32, inside.size * share * rank),
                Leg(Op.GATHER, across.scope, torch.uint8, form.room(share, rank)),
                Leg(Op.GATHER, inside.scope, torch.float32, share * rank),
            ]
        return tuple(made)

    def init(self, layer: Layer, world: World, rng: torch.Generator, warm: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return self.core.init(layer, world, rng, warm)

    def exchange(self, x: Tensor, out: Tensor, memory: Memory, world: World) -> Exchange:
        if not world.tiered:
            yield from self.core.exchange(x, out, memory, world)
            return
        on, m, (down, up) = kernels.of(x), as_matrix(x), self.core.forms
        q = of_unit_size(memory.warm["q"].to(x.device)).contiguous()
        p = x.new_empty(min(m.shape), q.shape[1])
        memory.energy = on.sketch(m, memory.residual, q, p)
        p = orthonormal((yield from _added_up(p, 1.0, memory, world, down, None))).contiguous()
        on.sketch_back(m, p, q)
        leave = partial(on.subtract_product, m, p)  # x then holds the leftover
        memory.warm["q"] = yield from _added_up(q, 1 / world.size, memory, world, up, leave)
        on.product(p, memory.warm["q"], as_matrix(out))


def _added_up(
    factor: Tensor, weight: float, memory: Memory, world: World, form: Form, tell: Callable[[Tensor], None] | None
) -> Generator[Message, Tensor, Tensor]:
    """All ranks' factors, added up and weighed; `tell` hears in time what of mine is in the sum.

    What rounding took off a share of the machine's sum counts as not sent by the rank that rounded it.
    """
    inside, across, (length, rank) = world.inside(), world.across(), factor.shape
    share = -(-length // inside.size)
    rows = memory.take(inside.size * share * rank, torch.float32, factor.device)
    rows[: factor.numel()] = factor.view(-1)
    rows[factor.numel() :] = 0
    received = yield Message(Op.SCATTER, inside.scope, rows.view(inside.size, share * rank))
    mine = received.sum(0).view(share, rank)
    exact = mine.clone()
    payload = memory.take(form.room(share, rank), torch.uint8, factor.device)
    kernels.of(mine).code_factor(mine, payload, form.bits)
    if tell is not None:
        own = factor[inside.rank * share : (inside.rank + 1) * share]
        own += (mine - exact)[: len(own)]
        tell(factor)
    reply = yield Message(Op.GATHER, across.scope, payload)
    kernels.of(mine).sum_factors(reply, mine, weight, form.bits)
    everyone = yield Message(Op.GATHER, inside.scope, mine.view(-1))
    return everyone.reshape(inside.size * share, rank)[:length].clone()
