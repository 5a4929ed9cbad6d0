"""Nothing is pickled on the wire or in state: with pickle and torch's object collectives out of order, all goes on."""

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import torch.distributed as dist
from ranks import run
from training import alike, bits, ddp, toy, train

import laconic


class Alternate(laconic.Policy):
    """Two plans in turn."""

    period = 2

    def start(self, layers: Sequence[laconic.Layer], world: laconic.World) -> laconic.Plan:
        return laconic.Static(laconic.TopK(density=0.1)).start(layers, world)

    def propose(self, stats: laconic.Stats, plan: laconic.Plan) -> tuple[laconic.Plan, str]:
        other = laconic.Sign() if plan["2.weight"] == laconic.TopK(density=0.1) else laconic.TopK(density=0.1)
        return laconic.Plan({**plan, "2.weight": other}), "by turns"


def _refuse(*_: object, **__: object) -> NoReturn:
    raise AssertionError("something is pickled")


def train_save_and_load(rank: int, folder: str, forbidden: bool) -> tuple[str, list[int], int]:
    model, resumed = ddp(toy()), ddp(toy())
    kept = pickle.load, pickle.loads, pickle.Unpickler
    if forbidden:
        pickle.load = pickle.loads = pickle.Unpickler = _refuse  # type: ignore[assignment,misc]
        for name in ("broadcast_object_list", "all_gather_object", "gather_object", "scatter_object_list"):
            setattr(dist, name, _refuse)
            setattr(dist.distributed_c10d, name, _refuse)
        dist.distributed_c10d._object_to_tensor = _refuse
        dist.distributed_c10d._tensor_to_object = _refuse
    handle = laconic.attach(model, Alternate())
    train(model, rank, range(7))
    handle.save(folder)
    resumed.module.load_state_dict(model.module.state_dict())
    again = laconic.attach(resumed, Alternate())
    again.load(folder)
    train(resumed, rank, range(3))
    pickle.load, pickle.loads, pickle.Unpickler = kept  # type: ignore[misc]
    return bits([*model.parameters(), *resumed.parameters()]), [c.step for c in handle.history], again.steps


def test_training_plan_changes_and_checkpoints_need_no_pickle(tmp_path: Path) -> None:
    forbidden = run(train_save_and_load, 2, folder=str(tmp_path / "forbidden"), forbidden=True)
    allowed = run(train_save_and_load, 2, folder=str(tmp_path / "allowed"), forbidden=False)
    assert alike([*forbidden, *allowed])
    assert forbidden[0][1:] == ([3, 5], 10)
