"""What is known about a run: what the wire carried, what was left unsent, and where the time went."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import sqrt

from laconic.exchange import Compressor, Op
from laconic.world import Scope

Sounding = tuple[tuple[int, float], ...]  # bytes and seconds of gathers among all ranks, the shortest first


@dataclass
class LayerStats:
    """One layer. Bytes are what this rank sent since attach; energies are summed over all ranks, of one recent step."""

    compressor: str = "Dense"
    wire_bytes: int = 0
    dense_bytes: int = 0
    energy: float = 0.0  # |gradient + residual|^2
    left: float = 0.0  # |what was not sent|^2
    residual_bytes: int = 0

    @property
    def error(self) -> float:
        """Relative: the norm of what was not sent over the norm of what there was to send."""
        return sqrt(self.left / self.energy) if self.energy > 0 else 0.0

    @property
    def residual_norm(self) -> float:
        """Over all ranks."""
        return sqrt(self.left)

    @property
    def ratio(self) -> float:
        """How many times fewer bytes than dense."""
        return self.dense_bytes / self.wire_bytes if self.wire_bytes else 1.0


@dataclass(frozen=True)
class Table:
    """What rungs would leave of one layer: sums over all ranks, averaged over `steps` watched steps."""

    rungs: tuple[Compressor, ...]
    errors: tuple[float, ...]  # |what each rung would not send|^2
    energy: float  # |gradient + residual|^2, or that of the gradient alone, as the policy wants it
    gradient: float  # |gradient|^2
    steps: int


@dataclass(frozen=True)
class Transfer:
    """One collective of this rank, with the seconds of its start and its end."""

    op: Op
    scope: Scope
    nbytes: int  # of the message
    began: float
    ended: float


@dataclass(frozen=True)
class BucketTrace:
    """One bucket of one step: when it was ready, its collectives in order, and its arithmetic as (start, end)."""

    names: tuple[str, ...]
    ready: float
    transfers: tuple[Transfer, ...]
    arithmetic: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class StepTrace:
    """One step of this rank, on one clock: from forward pass to forward pass, and when its last mean was there.

    `buckets` are those that were traced; a step that took the shortest way traces none.
    """

    step: int
    plan: str  # its digest
    began: float
    reduced: float
    ended: float
    buckets: tuple[BucketTrace, ...] = ()
    core_s: float = 0.0  # that laconic's own threads took of a core; 0 on the shortest way

    @property
    def seconds(self) -> float:
        return self.ended - self.began

    @property
    def working(self) -> float:
        """Until the last mean was there: the part that a plan has a say in. A pause between two steps is not in it."""
        return self.reduced - self.began

    @property
    def tail(self) -> float:
        """From there to the next forward pass."""
        return max(0.0, self.ended - self.reduced)


@dataclass
class Stats:
    """The whole model, since attach."""

    steps: int = 0
    skipped: int = 0  # steps that held a non-finite value
    layers: Mapping[str, LayerStats] = field(default_factory=dict)
    wire_bytes: int = 0  # what this rank sent, with the few bytes of control that rode along
    compress_s: float = 0.0  # this rank's time in arithmetic
    communicate_s: float = 0.0  # from the start of each collective to its end, summed
    buffer_bytes: int = 0  # memory that is reused from step to step
    tables: Mapping[str, Table] = field(default_factory=dict)  # since the last decision, of layers that were watched
    step_s: float = 0.0  # this rank's wall clock from step to step under the plan in force: the median of recent ones
    step_times: Mapping[str, float] = field(default_factory=dict)  # the same by the digest of each recent plan
    learning_rate: float | None = None  # of the optimizer's first group, on this rank; None where none was seen
    recent: tuple[StepTrace, ...] = ()  # the last steps, oldest first
    sounding: Sounding = ()  # where the policy wanted one since the last decision

    @property
    def dense_bytes(self) -> int:
        return sum(layer.dense_bytes for layer in self.layers.values())

    @property
    def ratio(self) -> float:
        """How many times fewer bytes than dense."""
        return self.dense_bytes / self.wire_bytes if self.wire_bytes else 1.0

    @property
    def residual_bytes(self) -> int:
        return sum(layer.residual_bytes for layer in self.layers.values())

    @property
    def error(self) -> float:
        """Relative, over all layers that may leave something unsent."""
        energy = sum(layer.energy for layer in self.layers.values())
        left = sum(layer.left for layer in self.layers.values())
        return sqrt(left / energy) if energy > 0 else 0.0

    @property
    def residual_norm(self) -> float:
        """Over all layers and ranks."""
        return sqrt(sum(layer.left for layer in self.layers.values()))
