"""Sweep clusters that you do not have: ranks, bandwidths, compressors; scaling curves and break-even bandwidths.

Example: laconic simulate --model bert-base --devices 8 --nodes "1;8;64;2048" --inter "10gbit;25gbit;100gbit"
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from laconic.cli.curves import draw, even_words, page, save
from laconic.cli.plan import described, world_of
from laconic.compressors.expression import parse
from laconic.errors import InvalidConfig
from laconic.planning.costs import DEVICES
from laconic.planning.models import MODELS
from laconic.planning.paper import comparison
from laconic.planning.profile import Profile
from laconic.planning.rates import parse_rate, spell
from laconic.planning.sweep import BreakEven, Point, break_evens, points

NODES = "1;4;16;64;256;1024;2048"
RATES = "1gbit;10gbit;100gbit"
COMPRESSORS = "TopK(density=0.01);Quantize(bits=4)"


def describe(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", default="resnet50", help=f"one of {', '.join(MODELS)} (default resnet50)")
    parser.add_argument("--devices", type=int, default=8, help="devices (ranks) a machine (default 8)")
    parser.add_argument("--nodes", default=NODES, help=f'machines, separated by semicolons (default "{NODES}")')
    parser.add_argument("--inter", default=RATES, help=f'rates between machines (default "{RATES}")')
    parser.add_argument("--intra", default="nvlink", help="rate inside a machine (default nvlink)")
    parser.add_argument("--device", default="v100", help=f"one of {', '.join(DEVICES)} (default v100)")
    parser.add_argument("--batch", type=int, help="examples a device takes (default: what is usual for the model)")
    parser.add_argument("--compressors", default=COMPRESSORS, help=f'separated by semicolons (default "{COMPRESSORS}")')
    parser.add_argument("--output", "-o", metavar="HTML", default="simulate.html", help="(default simulate.html)")
    parser.add_argument("--png", default="simulate.png", help="(default simulate.png)")
    parser.add_argument("--json", action="store_true", help="print one JSON object; draw nothing")
    parser.add_argument("--paper", action="store_true", help="instead: Espresso's published cases, as a table")


def run(arguments: argparse.Namespace) -> int:
    if arguments.paper:
        print("\n".join(comparison()))
        return 0
    given = [parse(text.strip()) for text in arguments.compressors.split(";")]
    machines = [_machines(text) for text in arguments.nodes.split(";")]
    rates = [parse_rate(text, "inter") for text in arguments.inter.split(";")]

    def cluster(nodes: int, bits: float) -> Profile:
        world = world_of(nodes, arguments.devices)
        return described(arguments.model, world, spell(bits), arguments.intra, arguments.device, arguments.batch)

    made = points(cluster, machines, rates, given)
    several = [nodes for nodes in machines if nodes > 1]
    evens = [even for nodes in dict.fromkeys(several[:1] + several[-1:]) for even in break_evens(cluster, nodes, given)]
    if arguments.json:
        print(json.dumps({"points": [asdict(p) for p in made], "break_even": [_even(even) for even in evens]}))
        return 0
    lines = words(made, evens)
    print("\n".join(lines))
    title = f"{arguments.model} on machines of {arguments.devices} {arguments.device}, {arguments.intra} inside"
    figure = draw(title, made, evens)
    save(figure, Path(arguments.png))
    try:
        Path(arguments.output).write_text(page(title, figure, lines, evens), encoding="utf-8")
    except OSError as error:
        raise InvalidConfig("output", arguments.output, f"choose a file that can be written: {error}") from None
    print(f"Drawn in {arguments.output} and {arguments.png}.")
    return 0


def words(made: list[Point], evens: list[BreakEven]) -> list[str]:
    """The sweep in sentences: the largest cluster, and where compression stops paying."""
    ranks = max(point.ranks for point in made)
    lines = []
    for rate in sorted({point.inter_bits for point in made}):
        here = {point.way: point for point in made if point.ranks == ranks and point.inter_bits == rate}
        best = min(here.values(), key=lambda point: point.seconds)
        lines.append(
            f"{ranks} ranks, {spell(rate)}: dense {here['dense'].seconds * 1e3:,.1f} ms a step"
            f" ({here['dense'].efficiency:.0%} computing); best is {best.way}, {best.seconds * 1e3:,.1f} ms"
            f" ({best.efficiency:.0%})."
        )
    return lines + [f"{even.way} on {even.ranks} ranks pays below: {even_words(even)}." for even in evens]


def _machines(text: str) -> int:
    if not text.strip().isdigit():
        raise InvalidConfig("nodes", text, 'write whole numbers, as in "1;8;64"')
    return int(text)


def _even(even: BreakEven) -> dict[str, object]:
    """JSON has no infinity: null is never, -1 is at any bandwidth."""
    bits = -1.0 if even.inter_bits == float("inf") else even.inter_bits
    return {"way": even.way, "ranks": even.ranks, "inter_bits": bits}
