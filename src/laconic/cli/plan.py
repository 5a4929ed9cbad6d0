"""Plan before you train: what to compress, by which route, what it gains, and where the time goes. Needs no cluster.

Example: laconic plan --model resnet101 --nodes 8 --devices 8 --inter 25gbit --intra nvlink
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path

from laconic.compressors.expression import parse
from laconic.errors import InvalidConfig
from laconic.exchange import Compressor
from laconic.planning.advice import SEARCHES, advise, told
from laconic.planning.costs import DEVICES
from laconic.planning.link import what_if
from laconic.planning.models import MODELS, model_named
from laconic.planning.profile import Profile
from laconic.planning.rates import parse_rate
from laconic.world import World

COMPRESSOR = "TopK(density=0.01)"
LARGEST_FILE = 64 << 20


def describe(parser: argparse.ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--model", help=f"one of {', '.join(MODELS)}")
    what.add_argument("--profile", metavar="FILE", help="a profile, as a probe writes it")
    add_cluster(parser)
    parser.add_argument("--inter", help="rate between machines, such as 25gbit (default 25gbit, or as in the profile)")
    parser.add_argument(
        "--search", default="espresso", help=f"{' or '.join(SEARCHES)}: milliseconds, or seconds for more"
    )
    parser.add_argument(
        "--compressor", action="append", metavar="EXPR", help=f'may be given several times (default "{COMPRESSOR}")'
    )
    parser.add_argument("--output", "-o", metavar="PLAN", help="write the plan as a file that attach takes")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """What describes the cluster, for plan and simulate."""
    parser.add_argument("--devices", type=int, help="devices (ranks) a machine (default 8)")
    parser.add_argument("--intra", help="rate inside a machine, such as nvlink or pcie3x16 (default nvlink)")
    parser.add_argument("--device", help=f"one of {', '.join(DEVICES)} (default v100)")
    parser.add_argument("--batch", type=int, help="examples a device takes (default: what is usual for the model)")
    parser.add_argument("--nodes", type=int, help="machines (default 8)")


def run(arguments: argparse.Namespace) -> int:
    profile = profile_of(arguments)
    given = compressors_of(arguments.compressor)
    advice = advise(profile, given, arguments.search)
    if arguments.output:
        try:
            advice.plan.save(arguments.output)
        except OSError as error:
            raise InvalidConfig("output", arguments.output, f"choose a file that can be written: {error}") from None
    if arguments.json:
        print(json.dumps(advice.as_json()))
    else:
        print("\n".join(told(advice)))
    return 0


def compressors_of(texts: list[str] | None) -> list[Compressor]:
    return [parse(text) for text in texts or [COMPRESSOR]]


def profile_of(arguments: argparse.Namespace) -> Profile:
    """Read the profile, or describe a named model on a described cluster."""
    if arguments.profile is None:
        world = world_of(_or(arguments.nodes, 8), _or(arguments.devices, 8))
        return described(
            arguments.model, world, arguments.inter or "25gbit", arguments.intra or "nvlink",
            arguments.device or "v100", arguments.batch,
        )  # fmt: skip
    profile = _read(Path(arguments.profile))
    for key in ("device", "batch"):
        if getattr(arguments, key) is not None:
            raise InvalidConfig(key, getattr(arguments, key), "the profile says so already: leave it out")
    nodes = _or(arguments.nodes, profile.world.size // profile.world.node_size)
    world = world_of(nodes, _or(arguments.devices, profile.world.node_size))
    if arguments.inter or arguments.intra:  # the measured model on another network
        inter, intra = arguments.inter or "25gbit", arguments.intra or "nvlink"
        links = what_if(world, parse_rate(inter, "inter"), parse_rate(intra, "intra"))
        return replace(profile, world=world, links=links)
    profile.require(world=world)
    return profile


def described(model: str, world: World, inter: str, intra: str, device: str, batch: int | None = None) -> Profile:
    """A what-if profile."""
    if device not in DEVICES:
        raise InvalidConfig("device", device, f"choose one of {', '.join(DEVICES)}")
    if batch is not None and not 1 <= batch <= 1 << 20:
        raise InvalidConfig("batch", batch, "choose a whole number from 1")
    made = model_named(model)
    links = what_if(world, parse_rate(inter, "inter"), parse_rate(intra, "intra"))
    return Profile(made.name, world, made.trace(device, batch), links, device)


def world_of(nodes: int, devices: int) -> World:
    for key, value in (("nodes", nodes), ("devices", devices)):
        if not 1 <= value <= 1 << 20:
            raise InvalidConfig(key, value, "choose a whole number from 1")
    return World(0, nodes * devices, devices)


def _or(value: int | None, default: int) -> int:
    return default if value is None else value


def _read(path: Path) -> Profile:
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise InvalidConfig("profile", str(path), f"a profile has at most {LARGEST_FILE >> 20} MiB")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfig("profile", str(path), f"name a readable profile: {error}") from None
    return Profile.from_json(text, str(path))
