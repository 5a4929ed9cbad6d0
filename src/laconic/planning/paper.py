"""Espresso's published cases (arXiv 2205.14465), simulated: 8 machines of 8 V100s, two kinds of machine, six models."""

from collections.abc import Iterator
from dataclasses import dataclass

from laconic.compressors.randomk import RandomK
from laconic.compressors.sign import Sign
from laconic.compressors.topk import TopK
from laconic.exchange import Compressor
from laconic.planning.board import Board
from laconic.planning.link import what_if
from laconic.planning.models import model_named
from laconic.planning.profile import Profile
from laconic.planning.rates import NAMED
from laconic.planning.search import better, espresso
from laconic.world import World

# UGATIT is not in our table of models; ResNet50 stands in for it.
MODELS = ("vgg16", "resnet101", "resnet50", "bert-base", "gpt2", "lstm")
MACHINES = (("NVLink, 100 Gbit/s", NAMED["nvlink"], 100e9), ("PCIe, 25 Gbit/s", NAMED["pcie3x16"], 25e9))
COMPRESSORS: tuple[Compressor, ...] = (TopK(density=0.01, selection="sampled"), RandomK(density=0.01), Sign())
PUBLISHED_MS = {"vgg16": 17, "resnet101": 179, "bert-base": 125, "gpt2": 99}  # selection times


@dataclass(frozen=True)
class Case:
    """One model on one kind of machine with one compressor; seconds a step."""

    machine: str
    model: str
    compressor: str
    dense: float
    espresso: float
    better: float
    bound: float


def cases() -> Iterator[Case]:
    world = World(0, 64, 8)
    for machine, intra, inter in MACHINES:
        for model in MODELS:
            trace = model_named(model).trace("v100")
            profile = Profile(model, world, trace, what_if(world, inter, intra), "v100")
            for compressor in COMPRESSORS:
                board = Board.of(profile, [compressor])
                found = espresso(board)
                dense, mine = board.seconds(board.dense()), board.seconds(found)
                more = board.seconds(better(board, found, simulations=400))
                yield Case(machine, model, type(compressor).__name__, dense, mine, more, board.bound())


def comparison() -> Iterator[str]:
    """The table, in Markdown, a line at a time."""
    yield "| machines | model | compressor | dense ms | Espresso ms | better ms | gain | over the bound |"
    yield "|---|---|---|---|---|---|---|---|"
    for case in cases():
        gain, above = case.dense / case.better - 1, case.better / case.bound - 1
        times = " | ".join(f"{seconds * 1e3:.1f}" for seconds in (case.dense, case.espresso, case.better))
        yield f"| {case.machine} | {case.model} | {case.compressor} | {times} | {gain:+.0%} | {above:.1%} |"
