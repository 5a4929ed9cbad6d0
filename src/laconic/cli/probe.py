"""Measure this cluster and a model's backward pass, and write a profile for `laconic plan`.

Start it on every rank: torchrun --nproc-per-node 2 -m laconic probe -o profile.json --model my_module:make_model
where make_model() returns (model, loss) and loss() runs one forward pass. Without --model the lab's workload is used.
"""

import argparse
import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

from torch import Tensor, nn

from laconic.cli.plan import compressors_of
from laconic.errors import InvalidConfig
from laconic.integrations.prober import joined, probe
from laconic.lab import workloads


def describe(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output", "-o", default="profile.json", help="where to write it (default profile.json)")
    parser.add_argument("--model", metavar="MODULE:FUNCTION", help="a function that returns (model, loss)")
    parser.add_argument("--workload", default="lstm", help=f"or one of {', '.join(workloads.WORKLOADS)} (default lstm)")
    parser.add_argument(
        "--compressor", action="append", metavar="EXPR", help="whose kernels to measure; may be repeated"
    )
    parser.add_argument("--iterations", type=int, default=10, help="backward passes to average (default 10)")


def run(arguments: argparse.Namespace) -> int:
    given = compressors_of(arguments.compressor)
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        raise InvalidConfig(
            "RANK", None, "start the probe on every rank: torchrun ... -m laconic probe -o profile.json"
        )
    name, model, loss = _task(arguments)
    with joined(int(os.environ.get("LOCAL_WORLD_SIZE", "1"))) as comm:
        first = comm.world.rank == 0

        def tell(what: str) -> None:
            if first:
                print(f"\rprobing: {what:50}", end="", file=sys.stderr, flush=True)

        profile = probe(name, model, loss, comm, given, arguments.iterations, tell)
        if first:
            print(file=sys.stderr)
            try:
                Path(arguments.output).write_text(profile.to_json(), encoding="utf-8")
            except OSError as error:
                raise InvalidConfig("output", arguments.output, f"choose a file that can be written: {error}") from None
            print(f"{arguments.output}: {len(profile.trace.layers)} layers, {comm.world.size} ranks; next:")
            print(f"  laconic plan --profile {arguments.output}")
    return 0


def _task(arguments: argparse.Namespace) -> tuple[str, nn.Module, Callable[[], Tensor]]:
    if arguments.model is None:
        workload = workloads.find(arguments.workload)
        model = workload.build(0)
        batches = workload.data(None).batches(workload.batch, 0, 0)
        return workload.name, model, lambda: workload.loss(model, *next(batches))
    module, _, function = arguments.model.partition(":")
    sys.path.insert(0, "")
    try:
        model, loss = getattr(importlib.import_module(module), function)()
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise InvalidConfig(
            "model", arguments.model, f"name module:function that returns (model, loss): {error}"
        ) from None
    return arguments.model, model, loss
