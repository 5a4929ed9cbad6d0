"""Small but real training tasks, sized so that one core stands to the link as a GPU to its cluster's network.

A core of a 2020s server is about 1/200 of a V100, so 50 Mbit/s here is about 10 Gbit/s there.
"""

from laconic.errors import InvalidConfig
from laconic.lab.workloads.recurrent import LSTM
from laconic.lab.workloads.transformer import GPT
from laconic.lab.workloads.vision import MLP, RESNET, VGG
from laconic.lab.workloads.workload import Data, Workload

WORKLOADS = {workload.name: workload for workload in (LSTM, GPT, VGG, RESNET, MLP)}


def find(name: str) -> Workload:
    """The workload of that name."""
    if name not in WORKLOADS:
        raise InvalidConfig("workload", name, f"choose one of {', '.join(WORKLOADS)}")
    return WORKLOADS[name]


__all__ = ["WORKLOADS", "Data", "Workload", "find"]
