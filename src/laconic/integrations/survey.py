"""The survey before the first step: links, arithmetic and cores, in about a second; what planning online stands on."""

from collections.abc import Mapping, Sequence
from math import prod

import torch
from torch import Tensor

from laconic.comm.protocol import Comm
from laconic.exchange import Compressor
from laconic.integrations.probe import Tell, measure_handling, measure_links
from laconic.integrations.prober import cores
from laconic.integrations.rehearsal import Rehearsal
from laconic.layer import Layer
from laconic.planning.link import Line, fit
from laconic.planning.surroundings import Surroundings

MESSAGES = (1 << 12, 1 << 16, 1 << 19)  # bytes
SIZES = ((96, 128), (512, 512))
BUCKET = 4  # layers that hold a conversation together, as about so many do in a bucket
TURNS = 3


def survey(comm: Comm, options: Sequence[Compressor], device: str, tell: Tell = lambda _: None) -> Surroundings:
    """What a policy wants to know of this place; a collective act, with the same figures on every rank.

    Arithmetic is rehearsed on the host. Beside another device the documented model stands in for it: its queue would
    have to be drained for every figure.
    """
    tell("links")
    links = measure_links(comm, message_sizes=MESSAGES, repeats=TURNS)
    if device != "cpu":
        return Surroundings(comm.world, links, device=device)
    tell(f"arithmetic of {len(options)} expressions")
    rng = torch.Generator().manual_seed(1)
    buckets = [[Layer(f"{at} of {size}", size) for at in range(BUCKET)] for size in SIZES]
    gradients = {layer.name: torch.randn(layer.shape, generator=rng) for layers in buckets for layer in layers}
    rows = [[_rehearsed(option, layers, gradients, comm) for layers in buckets] for option in options]
    mine = [seconds for row in rows for layer in row for seconds in layer]
    handling = measure_handling(comm, MESSAGES[-1])
    told = comm.gather(torch.tensor([cores(), *mine], dtype=torch.float64)).mean(0).tolist()
    each, talks = iter(told[1:]), {}
    for option, row in zip(options, rows, strict=True):
        small, large = ([next(each) for _ in layer] for layer in row)
        talks[str(option)] = tuple(_line(pair, str(option)) for pair in zip(small, large, strict=True))
    return Surroundings(comm.world, links, talks, told[0], handling, device)


def _rehearsed(option: Compressor, layers: Sequence[Layer], gradients: Mapping[str, Tensor], comm: Comm) -> list[float]:
    """The parts of one layer's conversation, in a bucket of such layers."""
    rehearsal = Rehearsal(option, layers, comm.world)
    rehearsal.turn(gradients, count=False)  # the first one allocates
    for _ in range(TURNS):
        rehearsal.turn(gradients)
    return rehearsal.seconds()[layers[0].name]


def _line(seconds: tuple[float, float], key: str) -> Line:
    """Through two sizes; a part that does nothing may measure as nothing."""
    sizes = [float(prod(size)) for size in SIZES]
    return fit(sizes, [max(1e-9, one) for one in seconds], key)
