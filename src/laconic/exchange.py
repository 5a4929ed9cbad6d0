"""One layer's conversation with its peers, written without I/O.

A compressor's `exchange` is a generator: it yields messages, is sent what the network made of them, and writes the
mean. It never names a process group, so the same text runs in one process, over gloo or NCCL, and in a simulation.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from typing import Protocol, Self

import torch
from torch import Tensor

from laconic.layer import Layer
from laconic.world import Scope, World


class Op(Enum):
    """What the network does to a message; S is the number of ranks in its scope."""

    SUM = "sum"  # [n] -> [n], added up
    MAX = "max"  # [n] -> [n], the largest
    GATHER = "gather"  # [n] -> [S, n], everyone's
    SCATTER = "scatter"  # [S, n] -> [S, n], row j goes to rank j; what comes back is one row from each

    __hash__ = object.__hash__  # Enum's own is a function in Python, and these are keys in every round


ALONG = 1 << 16  # bytes of float32 sums that, between two ranks, go with codes: a copy costs less than a collective


@dataclass(frozen=True)
class Leg:
    """One round, as the planner prices it. `numel` is exact, or for data-dependent payloads an upper bound."""

    op: Op
    scope: Scope
    dtype: torch.dtype
    numel: int

    def wire_bytes(self, size: int) -> int:
        """Bytes that one rank of `size` sends, with the ring algorithms that gloo and NCCL use for large messages."""
        return wire_bytes(self.op, self.numel * self.dtype.itemsize, size)


def wire_bytes(op: Op, nbytes: int, size: int) -> int:
    """Bytes that one of `size` ranks sends for a message of `nbytes`."""
    match op:
        case Op.SUM | Op.MAX:
            return 2 * nbytes * (size - 1) // size
        case Op.GATHER:
            return nbytes * (size - 1)
        case Op.SCATTER:
            return nbytes * (size - 1) // size


@dataclass
class Message:
    """One round at run time. The data belongs to the network until the reply comes; a SUM may be made in place."""

    op: Op
    scope: Scope
    data: Tensor


Exchange = Generator[Message, Tensor, None]


def fresh(numel: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The plainest source of buffers: a new one each time."""
    return torch.empty(numel, dtype=dtype, device=device)


@dataclass
class Memory:
    """What a layer remembers from step to step.

    `residual` is what earlier steps left unsent: read only, and the conversation's first act is to add it to x.
    `warm` is the compressor's own state, tensors only; replace its entries, never write into them: a step that fails is
    undone by dropping them. `energy` is |x + residual|^2, set by the time of the first message; non-finite if x was.
    `take` lends a flat buffer until the conversation ends, or until it is given back by `give`.
    """

    residual: Tensor | None = None
    warm: dict[str, Tensor] = field(default_factory=dict)
    energy: float | Tensor = 0.0
    take: Callable[[int, torch.dtype, torch.device], Tensor] = fresh
    give: Callable[[Tensor], None] = lambda _: None

    def draw(self, salt: int = 0) -> int:
        """The next seed of this layer: equal on every rank for equal `salt`, and checkpointed with the layer."""
        seed = int(self.warm["seed"])
        self.warm["seed"] = torch.tensor(mix(seed + 1))
        return mix(seed ^ (salt + 1) * 0x632BE5AB)


def mix(value: int) -> int:
    """SplitMix64's finaliser, cut to 62 bits so that it fits a signed tensor."""
    value &= (1 << 64) - 1
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & (1 << 64) - 1
    value = (value ^ value >> 27) * 0x94D049BB133111EB & (1 << 64) - 1
    return (value ^ value >> 31) >> 2


@dataclass
class Voice:
    """One layer's part in a conversation: what is sent, where the mean belongs, and what it remembers."""

    x: Tensor
    out: Tensor
    memory: Memory


class Compressor(ABC):
    """How one layer's gradient crosses the network. Subclasses are frozen dataclasses: they compare and print.

    Laws (tests/contract): conservation, agreement, honesty, determinism, and what `contraction` or `variance` promise.
    """

    @property
    def lossless(self) -> bool:
        """Nothing is ever left over: no residual is kept, x may have any dtype, neighbours may be sent as one."""
        return False

    @property
    def random(self) -> bool:
        """Draws seeds, so the warm state holds one."""
        return False

    @abstractmethod
    def legs(self, layer: Layer, world: World) -> tuple[Leg, ...]:
        """The rounds of one conversation, in order."""

    @abstractmethod
    def exchange(self, x: Tensor, out: Tensor, memory: Memory, world: World) -> Exchange:
        """Yield messages, receive their reductions, write the mean.

        When the last message is yielded, x holds what was not sent: x_before + residual == sent + x. After its reply
        the mean is written into `out`, which may be x itself. Both are contiguous, of the layer's shape, and float32.
        A reply is lent until the next message: copy what is needed longer.
        """

    def init(self, layer: Layer, world: World, rng: torch.Generator, warm: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The warm state to start with, given what the layer had under an earlier plan. `rng` is alike on all ranks."""
        if not self.random:
            return {}
        return {"seed": warm["seed"] if "seed" in warm else torch.randint(1 << 62, (), generator=rng)}

    def for_layer(self, layer: Layer) -> "Compressor":
        """This compressor with what depends on the layer's kind filled in."""
        return self

    def unsuited(self, layer: Layer) -> str | None:
        """Why this compressor makes no sense for the layer, or None."""
        return None

    def wire_bytes(self, layer: Layer, world: World) -> int:
        """Bytes that one rank sends in one conversation; for data-dependent payloads an upper bound."""
        return sum(leg.wire_bytes(world.sizes[leg.scope]) for leg in self.legs(layer, world))

    def ladder(self, layer: Layer, low: float = 0.25, high: float = 4.0) -> Sequence["Compressor"]:
        """The same family, from gentle to harsh: degrees from `high` times this one's down to `low` times."""
        return (self,)

    @abstractmethod
    def error(self, x: Tensor) -> float:
        """The squared norm of what one rank would leave unsent of x; x is not changed."""

    def errors(self, x: Tensor, ladder: Sequence["Compressor"]) -> Tensor:
        """`error` for every rung of this family; a family that can tell many at once may estimate (within 2%)."""
        return torch.tensor([rung.error(x) for rung in ladder], dtype=torch.float64)

    def contraction(self, numel: int) -> float | None:
        """The least share of energy that one encoding removes: E|left|^2 <= (1 - share) |x|^2. None: not promised."""
        return None

    def replace(self, **changes: object) -> Self:
        """A copy with other parameters."""
        return replace(self, **changes)  # type: ignore[type-var]

    def __str__(self) -> str:
        """The expression that makes this compressor: its first field, and the others where they are not the default."""
        shown = []
        for index, item in enumerate(fields(self)):  # type: ignore[arg-type]
            value = getattr(self, item.name)
            if index and value == item.default:
                continue
            plain = float(value) if isinstance(value, float) else value  # numpy's floats are floats and print otherwise
            shown.append(str(value) if isinstance(value, Compressor) else f"{item.name}={plain!r}")
        return f"{type(self).__name__}({', '.join(shown)})" if shown else type(self).__name__


class Lines(Protocol):
    """What a chorus of certain layers says, for engines that know it by heart: sizes are those of the legs, and a step
    hands over addresses. The same bytes as `Choral.chorus`, and the same bits in leftovers and means.

    Residuals are there, and warm state is read only until `hear` has returned, when there is another. Offsets into
    replies, of one row or of everyone's, are in bytes.
    """

    def say(
        self, xs: list[int], residuals: list[int], warm: Sequence[Mapping[str, Tensor]], message: int
    ) -> list[float]:
        """x += residual, and the first message; every layer's energy."""

    def answer(self, reply: Tensor, at: int, message: int) -> None:
        """The second message, where there is one."""

    def leave(self) -> None:
        """After a second message: x becomes what was not sent. The message may be on its way by then."""

    def hear(self, reply: Tensor, at: int, outs: list[int], weight: float) -> None:
        """The means, from the last reply."""

    def remembered(self, warm: Sequence[dict[str, Tensor]]) -> Sequence[dict[str, Tensor]]:
        """The warm state after this step, given the one before."""


class Choral(Compressor):
    """A compressor by which layers can hold one conversation together. What is said is what each would say alone, side
    by side in one message; and the arithmetic may be one call for all."""

    @abstractmethod
    def chorus(self, voices: Sequence[Voice], world: World) -> Exchange:
        """`exchange` for several layers, whose messages lie in the order of `voices`. Buffers are the first one's."""

    def exchange(self, x: Tensor, out: Tensor, memory: Memory, world: World) -> Exchange:
        return self.chorus((Voice(x, out, memory),), world)

    def lines(self, layers: Sequence[Layer], world: World) -> Lines | None:
        """What it says to these layers' peers from CPUs, where that is the same in every step and known beforehand."""
        return None

    @property
    def joins(self) -> bool:
        """Whether it does: not where a subclass has a way of its own for one layer."""
        return type(self).exchange is Choral.exchange
