"""Ways in: attach, PyTorch's own register_comm_hook, copies; and what is refused, with what to do instead."""

import copy
import logging
import pickle

import torch
from ranks import run
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from training import alike, bits, ddp, toy, train

import laconic


def every_way_in(rank: int) -> dict[str, str]:
    compressor, made = laconic.TopK(density=0.1), {}
    model = ddp(toy())
    laconic.attach(model, compressor)
    made["attach"] = model
    states = {
        "State that finds its model": laconic.State(compressor),
        "pickled": pickle.loads(pickle.dumps(laconic.State(compressor))),
        "copied": copy.deepcopy(laconic.State(compressor)),
        "from text": laconic.State("TopK(density=0.1)"),
    }
    for name, state in states.items():
        made[name] = ddp(toy())
        made[name].register_comm_hook(state, laconic.hook)
    made["State with its model"] = ddp(toy())
    given = laconic.State(compressor, model=made["State with its model"])
    made["State with its model"].register_comm_hook(given, laconic.hook)
    told = {}
    for name, one in made.items():
        train(one, rank, range(4))
        told[name] = bits(one.parameters())
    used = states["State that finds its model"]
    assert used.handle is not None
    told["a copy of a used state"] = str(copy.deepcopy(used).handle)
    told["steps"] = str(used.handle.steps)
    return told


def test_register_comm_hook_works_as_pytorch_documents_and_is_the_same_as_attach() -> None:
    told = run(every_way_in, 2)
    assert alike(told)
    assert told[0].pop("a copy of a used state") == "None"
    assert told[0].pop("steps") == "4"
    assert len(set(told[0].values())) == 1, told[0]


def attach_by_default(rank: int) -> list[str]:
    said: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    logging.getLogger("laconic").addHandler(Listener())
    logging.getLogger("laconic").setLevel(logging.INFO)
    model = ddp(toy())
    handle = laconic.attach(model)
    train(model, rank, range(2))
    return [*said, str(handle)]


def test_attach_without_a_choice_says_in_the_log_which_it_makes() -> None:
    first, second = run(attach_by_default, 2)
    assert any("the default" in line and "Auto" in line for line in first[:-1]), first
    assert "Auto()" in first[-1], "and so does what the handle prints"
    assert len(second) == 1, "only rank 0 logs it"


def _sparse() -> nn.Module:
    return nn.Sequential(nn.Embedding(50, 24, sparse=True), nn.Linear(24, 8))


def refuse(rank: int) -> dict[str, str]:
    def words(attempt: object) -> str:
        try:
            attempt()  # type: ignore[operator]
        except laconic.LaconicError as error:
            return f"{type(error).__name__}: {error}"
        return "nothing"

    second = ddp(toy())
    laconic.attach(second, laconic.Dense())
    hooked = ddp(toy())
    hooked.register_comm_hook(None, allreduce_hook)
    late = ddp(toy())
    late.register_comm_hook(laconic.State(laconic.Dense()), laconic.hook)
    mixed = torch.nn.parallel.distributed._MixedPrecision(param_dtype=torch.bfloat16)
    fused = toy()
    for parameter in fused.parameters():
        parameter._in_backward_optimizers = [object()]  # type: ignore[attr-defined]
    orphan = laconic.State(laconic.Dense())
    return {
        "not DDP": words(lambda: laconic.attach(toy(), laconic.Dense())),  # type: ignore[arg-type]
        "second attach": words(lambda: laconic.attach(second, laconic.Dense())),
        "another's hook": words(lambda: laconic.attach(hooked, laconic.Dense())),
        "attach after register_comm_hook": words(lambda: laconic.attach(late, laconic.Dense())),
        "sparse": words(lambda: laconic.attach(ddp(_sparse()), laconic.Dense())),
        "mixed_precision": words(lambda: laconic.attach(ddp(toy(), mixed_precision=mixed), laconic.Dense())),
        "fused optimizer": words(lambda: laconic.attach(ddp(fused), laconic.Dense())),
        "unknown option": words(lambda: laconic.attach(ddp(toy()), laconic.Dense(), sed=1)),
        "node_size": words(lambda: laconic.attach(ddp(toy()), laconic.Dense(), node_size=3)),
        "too few lanes": words(lambda: laconic.attach(ddp(toy()), laconic.PowerSGD(rank=1), lanes=1)),
        "a plan for another model": words(lambda: laconic.attach(ddp(toy()), laconic.Plan({"x": laconic.Sign()}))),
        "no model": words(lambda: orphan.bind()),
    }


REMEDY = {
    "not DDP": "wrap it with DDP", "second attach": "make a new DDP model", "another's hook": "make a new DDP model",
    "attach after register_comm_hook": "make a new DDP model", "sparse": "sparse=False", "mixed_precision": "autocast",
    "fused optimizer": "optimizer.step()", "no model": "register_comm_hook",
}  # fmt: skip
INVALID = {
    "unknown option": "sed=1", "node_size": "divide", "too few lanes": "lanes=2", "a plan for another model": "'x'",
}  # fmt: skip


def test_what_cannot_work_is_refused_early_with_the_remedy() -> None:
    told = run(refuse, 2)
    assert alike(told)
    for case, remedy in REMEDY.items():
        assert told[0][case].startswith("Unsupported: "), f"{case}: {told[0][case]}"
        assert remedy in told[0][case], f"{case}: {told[0][case]}"
    for case, remedy in INVALID.items():
        assert told[0][case].startswith("InvalidConfig: "), f"{case}: {told[0][case]}"
        assert remedy in told[0][case], f"{case}: {told[0][case]}"


def register_on_a_sparse_model(rank: int) -> str:
    model = ddp(_sparse())
    model.register_comm_hook(laconic.State(laconic.Dense()), laconic.hook)
    try:
        model(torch.randint(50, (4,))).sum().backward()
    except laconic.Unsupported as error:
        return str(error)
    return "nothing"


def test_the_hook_refuses_in_the_first_backward_what_attach_refuses() -> None:
    assert all("sparse=False" in words for words in run(register_on_a_sparse_model, 2))
