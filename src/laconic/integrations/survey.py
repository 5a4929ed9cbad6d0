"""The survey before the first step: links, arithmetic and cores, in about a second; what planning online stands on."""

from collections.abc import Sequence

import torch

from laconic.comm.protocol import Comm
from laconic.exchange import Compressor
from laconic.integrations.probe import Tell, measure_handling, measure_links
from laconic.integrations.prober import cores
from laconic.integrations.rehearsal import Rehearsal
from laconic.layer import Layer
from laconic.planning.link import Line, fit
from laconic.planning.surroundings import Surroundings

MESSAGES = (1 << 12, 1 << 16, 1 << 19)  # bytes
LAYERS = (Layer("small", (96, 128)), Layer("large", (512, 512)))
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
    gradients = {layer.name: torch.randn(layer.shape, generator=rng) for layer in LAYERS}
    rows = []
    for option in options:
        rehearsal = Rehearsal(option, LAYERS, comm.world)
        rehearsal.turn(gradients, count=False)  # the first one allocates
        for _ in range(TURNS):
            rehearsal.turn(gradients)
        rows.append(rehearsal.seconds())
    mine = [seconds for row in rows for layer in LAYERS for seconds in row[layer.name]]
    handling = measure_handling(comm, MESSAGES[-1])
    told = comm.gather(torch.tensor([cores(), *mine], dtype=torch.float64)).mean(0).tolist()
    each, talks = iter(told[1:]), {}
    for option, row in zip(options, rows, strict=True):
        small, large = ([next(each) for _ in row[layer.name]] for layer in LAYERS)
        talks[str(option)] = tuple(_line(pair, str(option)) for pair in zip(small, large, strict=True))
    return Surroundings(comm.world, links, talks, told[0], handling, device)


def _line(seconds: tuple[float, float], key: str) -> Line:
    """Through two sizes; a part that does nothing may measure as nothing."""
    sizes = [float(layer.numel) for layer in LAYERS]
    return fit(sizes, [max(1e-9, one) for one in seconds], key)
