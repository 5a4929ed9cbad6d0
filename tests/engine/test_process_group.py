"""The door to torch.distributed. NCCL is not here to run: what is asked of torch is checked, not what it does."""

from typing import Any

import pytest
import torch.distributed as dist

from laconic.comm.process_group import ProcessGroupComm


@pytest.mark.parametrize(("backend", "lanes"), [("gloo", 3), ("nccl", 1)])
def test_words_between_hosts_go_by_gloo_whatever_gradients_go_by(
    monkeypatch: pytest.MonkeyPatch, backend: str, lanes: int
) -> None:
    """NCCL refuses tensors in the host's memory, and has one group for all lanes."""
    made: list[str] = []

    def new_group(ranks: list[int], backend: str, **_: Any) -> str:
        made.append(backend)
        return f"group {len(made)}"

    for name, fake in {
        "get_rank": lambda group: 0,
        "get_world_size": lambda group: 2,
        "get_backend": lambda group: backend,
        "get_process_group_ranks": lambda group: [0, 1],
        "new_group": new_group,
    }.items():
        monkeypatch.setattr(dist, name, fake)
    comm = ProcessGroupComm("the user's group")  # type: ignore[arg-type]
    comm.open(3)
    assert made == ["gloo"] + [backend] * lanes
