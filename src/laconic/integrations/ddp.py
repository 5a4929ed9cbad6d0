"""DistributedDataParallel: `attach` in one line, or PyTorch's own `register_comm_hook(State(...), hook)`.

No `from __future__ import annotations` here: DDP compares the hook's annotations by identity.
"""

import copy
import gc
import logging
import os
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.nn  # before there is a group: DDP imports it, and then its functions' defaults hold the group
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from laconic.comm.process_group import ProcessGroupComm
from laconic.control.agreement import agree
from laconic.control.controller import Controller
from laconic.control.record import Recorder
from laconic.errors import InvalidConfig, LaconicError, Unsupported
from laconic.integrations.buckets import cut_smaller
from laconic.integrations.handle import Handle
from laconic.integrations.learning_rate import LearningRate
from laconic.integrations.options import Options, as_policy
from laconic.integrations.survey import survey
from laconic.layer import Layer
from laconic.plan import Plan
from laconic.planning.surroundings import Surroundings
from laconic.policies.policy import Policy
from laconic.runtime.engine import Engine
from laconic.runtime.rounds import Lanes, Rounds, Stream
from laconic.version import VERSION

log = logging.getLogger(__name__)


def attach(model: DistributedDataParallel, what: object = None, **options: Any) -> Handle:
    """Compress the gradients of a DDP model; the training loop stays as it is.

    `what` is a compressor, a policy, a Plan or the path of a plan file; without it Auto decides, and says so in the
    log. `options` are those of `Options`. Every rank must call this, with the same arguments.

    >>> import laconic
    >>> handle = laconic.attach(DDP(model), laconic.TopK(density=0.01))  # doctest: +SKIP
    """
    state = State(what, model=model, **options)
    check(model)
    handle = state.bind()
    if not state.policy.lossless and state.worth_cutting():
        cut_smaller(model)
    model.register_comm_hook(state, hook)
    return handle


class State:
    """The state of laconic's hook, for `model.register_comm_hook(State(TopK(density=0.01)), hook)`.

    It finds its model when the first bucket arrives, or is given it; `handle` is there from then on. It can be pickled
    and copied: a copy starts afresh.
    """

    def __init__(self, what: object = None, *, model: DistributedDataParallel | None = None, **options: Any) -> None:
        unknown = sorted(set(options) - set(Options.__dataclass_fields__))
        if unknown:
            known = ", ".join(Options.__dataclass_fields__)
            raise InvalidConfig(unknown[0], options[unknown[0]], f"it is not an option; there are {known}")
        self.policy = copy.deepcopy(as_policy(what))  # what it learns belongs to one model
        self.options = Options(**options)
        self.handle: Handle | None = None
        self.around: Surroundings | None = None  # what the survey found, where the policy asked for one
        self._default = what is None
        self._model = model
        self._engine: Engine | None = None
        self._bound: weakref.ref[DistributedDataParallel] | None = None
        self._names: dict[int, str] = {}
        self._cuts: dict[int, _Cut] = {}  # by the bucket's index

    def __getstate__(self) -> dict[str, object]:
        options = replace(self.options, optimizer=None)  # a copy of it would train nothing
        return {"policy": self.policy, "options": options, "_default": self._default}

    def __setstate__(self, state: dict[str, object]) -> None:
        nothing = dict.fromkeys(("handle", "around", "_model", "_engine", "_bound"))
        self.__dict__.update(state, **nothing, _names={}, _cuts={})

    def bind(self) -> Handle:
        """Agree with all ranks and set up; a collective act, done once."""
        if self.handle is not None:
            return self.handle
        model = self._model if self._model is not None else _model_of(self)
        self._model, self._bound = None, weakref.ref(model)  # DDP holds this state where no collector sees a cycle
        self._names = {id(parameter): name for name, parameter in model.module.named_parameters()}
        layers = [Layer.of(name, p) for name, p in model.module.named_parameters() if p.requires_grad]
        comm = ProcessGroupComm(model.process_group)
        self._engine, controller, recorder, self.around = _set_up(layers, comm, self.policy, self.options, model)
        self.handle = Handle(self._engine, controller, self.policy, recorder)
        handle = self.handle

        frozen = [(name, p) for name, p in model.module.named_parameters() if not p.requires_grad]

        def between_steps(*_: object) -> None:
            _still_frozen(frozen)
            handle.control()

        model.register_forward_pre_hook(between_steps)
        comm.close_at_exit(partial(_idle, weakref.ref(self._engine), weakref.ref(controller)))
        if comm.world.rank == 0:
            compressed = sum(1 for compressor in handle.plan.values() if not compressor.lossless)
            kind = getattr(self.policy, "what", type(self.policy).__name__)
            chosen = f"{kind} (the default; choose with attach(model, ...))" if self._default else kind
            log.info("laconic: %s on %d of %d layers", chosen, compressed, len(layers))
        return self.handle

    def worth_cutting(self) -> bool:
        """Whether buckets smaller than DDP's own pay; where the link was not measured, what is chosen says so."""
        assert self._engine is not None
        return self.around is None or self.around.worth_cutting(list(self._engine.layers.values()))

    def _cut(self, bucket: Any) -> "_Cut":
        """A bucket's layers and where they lie; known again by its memory, which stays but for DDP's one rebuild."""
        index, buffer = bucket.index(), bucket.buffer()
        known = self._cuts.get(index)
        if known is not None and known.lies_in(buffer):
            return known
        self._cuts = {at: cut for at, cut in self._cuts.items() if at < index}  # buckets were rebuilt
        parameters = bucket.parameters()
        try:
            names = tuple(self._names[id(parameter)] for parameter in parameters)
        except KeyError:
            raise Unsupported(
                "the model's parameters are not those that laconic was attached to: attach again"
            ) from None
        slices = dict(zip(names, buffer.split([p.numel() for p in parameters]), strict=True))
        found = self._cuts[index] = _Cut(buffer, slices, dict(zip(names, parameters, strict=True)))
        return found

    def reduce(self, bucket: Any) -> "torch.futures.Future[torch.Tensor]":
        """Send one bucket on its way."""
        handle = self.handle or self.bind()
        if bucket.index() == 0:
            handle.control()  # for ranks that never start a forward pass: join()'s early finishers
        cut = self._cut(bucket)
        engine, last, label = self._engine, bucket.is_last(), f"bucket {bucket.index()}"
        assert engine is not None
        mean = engine.reduce_whole(cut.names, cut.buffer, last=last, label=label)
        if mean is not None:
            return mean
        twins = cut.twin if self._overwrites() else None
        return engine.reduce(cut.slices, cut.buffer, last=last, label=label, twins=twins).then(_value)

    def _overwrites(self) -> bool:
        """Whether DDP will write every parameter's gradient when backward ends.

        Not those of layers that no rank used, nor those of a rank that takes part in others' steps only (`join`).
        """
        model = self._bound() if self._bound is not None else None
        return model is not None and not (
            model.find_unused_parameters or model.static_graph or model._join_config.enable
        )


@dataclass
class _Cut:
    """A bucket, its layers by name, and the parameters that they are the gradients of."""

    buffer: torch.Tensor
    slices: Mapping[str, torch.Tensor]
    parameters: Mapping[str, torch.Tensor]

    def __post_init__(self) -> None:
        self.names = tuple(self.slices)

    def lies_in(self, buffer: torch.Tensor) -> bool:
        """Whether this is that bucket: its memory cannot be another's while it is held here."""
        return self.buffer.data_ptr() == buffer.data_ptr() and self.buffer.numel() == buffer.numel()

    def twin(self, name: str) -> torch.Tensor | None:
        """The parameter's own gradient, where DDP keeps its buckets apart from them.

        DDP has copied it into the bucket, after the hooks of its that PyTorch has, and will overwrite it with the mean
        when backward ends. In between nobody reads it, and it holds what the bucket holds.
        """
        grad = self.parameters[name].grad
        if (
            grad is None
            or grad.dtype is not torch.float32
            or not grad.is_contiguous()
            or grad.requires_grad
            or grad.data_ptr() == self.slices[name].data_ptr()  # gradient_as_bucket_view: it is the slice
        ):
            return None
        return grad


def _value(mean: "torch.futures.Future[torch.Tensor]") -> torch.Tensor:
    """The mean, or the failure raised: DDP takes an exception that is set on a future for a result."""
    return mean.value()


def hook(
    state: State,
    bucket: dist.GradBucket,  # type: ignore[name-defined]  # torch has no stub for it
) -> torch.futures.Future[torch.Tensor]:
    """The communication hook: `model.register_comm_hook(laconic.State(...), laconic.hook)`."""
    return state.reduce(bucket)


def check(model: object) -> None:
    """Refuse early what cannot work, with what to do instead."""
    if not isinstance(model, DistributedDataParallel):
        raise Unsupported(
            f"attach takes a DistributedDataParallel model, not {type(model).__name__}: wrap it with DDP first"
        )
    if model.mixed_precision is not None:  # first: it registers a hook of its own
        raise Unsupported(
            "DDP's mixed_precision= does its own gradient casting: use torch.autocast, or Cast() here, instead"
        )
    if model._comm_hooks:
        name = getattr(model._comm_hooks[0][0], "__qualname__", "a hook")
        raise Unsupported(
            f"this model has a communication hook already ({name}) and DDP takes one: make a new DDP model"
        )
    for name, module in model.module.named_modules():
        if isinstance(module, (nn.Embedding, nn.EmbeddingBag)) and module.sparse:
            raise Unsupported(
                f"{name or 'the model'} has sparse gradients, which are not compressed: make it with sparse=False"
            )
    for name, parameter in model.module.named_parameters():
        if hasattr(parameter, "_in_backward_optimizers"):
            raise Unsupported(
                f"{name} is updated inside backward by a fused optimizer: call optimizer.step() after it instead"
            )
        if parameter.requires_grad and not parameter.dtype.is_floating_point:
            raise Unsupported(f"{name} is {parameter.dtype}: only real floating-point gradients can be reduced here")


def _still_frozen(frozen: Sequence[tuple[str, torch.Tensor]]) -> None:
    """Refuse a layer that is trained now and was not at attach: DDP does not reduce it, and ranks would drift apart."""
    for name, parameter in frozen:
        if parameter.requires_grad:
            raise Unsupported(
                f"{name} was frozen when DDP wrapped the model, so that its gradient is not reduced: after unfreezing, "
                "wrap the model in a new DDP, attach, and load the old handle's state_dict()"
            )


def _set_up(
    layers: list[Layer], comm: ProcessGroupComm, policy: Policy, options: Options, model: DistributedDataParallel
) -> tuple[Engine, Controller, Recorder, Surroundings | None]:
    described = "\n".join(f"{layer.name} {layer.shape} {layer.dtype}" for layer in layers)
    choice = f"residual_dtype={options.residual_dtype} commit={options.commit} seed={options.seed}"
    choice += f" lanes={options.lanes} node_size={options.node_size} bucket={model.bucket_bytes_cap}"
    agree(comm, {"library version": f"laconic {VERSION}", "parameters": described, "options": choice})
    node_size = _node_size(comm, options.node_size)
    comm.world = type(comm.world)(comm.world.rank, comm.world.size, node_size)
    plan = _first_plan(policy, layers, comm)
    comm.open(options.lanes or policy.rounds(layers, comm.world), node_size)
    around = _surveyed(policy, layers, comm, _device(model).type)
    plan = plan if around is None else policy.learn(around, plan).resolve(layers)
    recorder = Recorder(options.record, options.metrics, comm.world)
    engine = Engine(
        layers, comm, _rounds_for(model),
        residual_dtype=options.residual_dtype, commit=options.commit, seed=options.seed,
        on_step=(lambda tally: recorder.step(tally, engine.stats)) if recorder.wanted else None,
    )  # fmt: skip
    engine.adopt(plan)
    recorder.start(VERSION, plan, engine.layers)
    rate = LearningRate(options.optimizer, model.module.parameters())
    return engine, Controller(engine, comm, policy, recorder, rate), recorder, around


def _idle(engine: "weakref.ref[Engine]", controller: "weakref.ref[Controller]") -> bool:
    """Whether nothing is under way; so it is where they are gone."""
    return all(one is None or one.idle for one in (engine(), controller()))


def _first_plan(policy: Policy, layers: list[Layer], comm: ProcessGroupComm) -> Plan:
    """The plan that all ranks start with; where one rank's policy fails, no other waits for it."""
    plan, failure = Plan({}), None
    try:
        plan = policy.start(layers, comm.world)
    except LaconicError as error:
        failure = error
    outcome = "a plan for this model" if failure is None else str(failure)
    agree(comm, {"start": outcome, "plan": plan.to_json(), "policy": repr(policy)})
    if failure is not None:
        raise failure
    return plan


def _surveyed(policy: Policy, layers: list[Layer], comm: ProcessGroupComm, device: str) -> Surroundings | None:
    """What the policy wants to know of links and arithmetic, measured alike on every rank; None if it asks nothing."""
    options = policy.surveyed(layers, comm.world)
    if not options or comm.world.size == 1:
        return None
    began = perf_counter()
    around = survey(comm, options, "cpu" if device == "cpu" else "a100", lambda what: log.debug("probing: %s", what))
    if comm.world.rank == 0:
        log.info("laconic: probed links and arithmetic in %.1f s", perf_counter() - began)
    return around


def _node_size(comm: ProcessGroupComm, given: int | None) -> int:
    """Ranks on each machine: as given, or as torchrun says if it numbers this group's ranks machine by machine."""
    world = comm.world
    if given is not None:
        if world.size % given:
            raise InvalidConfig("node_size", given, f"it must divide the world size, {world.size}")
        size, place = given, world.rank % given
    else:
        size = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        place = int(os.environ.get("LOCAL_RANK", "-1"))
    everyone = comm.gather(torch.tensor([size, place])).tolist()
    regular = all(s == size and p == rank % size for rank, (s, p) in enumerate(everyone)) and world.size % size == 0
    return size if regular else 1


def _rounds_for(model: DistributedDataParallel) -> Rounds:
    """Threads for gloo; a side stream for CUDA."""
    device = _device(model)
    if device.type != "cuda":
        return Lanes("laconic")
    side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def aside() -> Any:
        side.wait_stream(torch.cuda.current_stream(device))
        return torch.cuda.stream(side)

    return Stream(aside)


def _device(model: DistributedDataParallel) -> torch.device:
    return next((p.device for p in model.module.parameters()), torch.device("cpu"))


def _model_of(state: State) -> DistributedDataParallel:
    """The DDP model that a state was registered on: DDP does not tell its hook."""
    for found in gc.get_objects():
        if issubclass(type(found), DistributedDataParallel) and any(known is state for _, known in found._comm_hooks):
            model: DistributedDataParallel = found
            hooks = model._comm_hooks
            model._comm_hooks = []  # its own registration is no second one
            try:
                check(model)
            finally:
                model._comm_hooks = hooks
            return model
    raise Unsupported("this State is not registered on a living DDP model: call model.register_comm_hook(state, hook)")
