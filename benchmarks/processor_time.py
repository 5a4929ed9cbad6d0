"""Where a step's processor time goes: the training thread, laconic's threads and the network's, method by method.

    python benchmarks/processor_time.py [--workload gpt] [--turns 12] [--methods "noop;Quantize(bits=2);..."]

Two ranks on loopback, each on a core of its own, as in the lab; no link is shaped, so that what is left of a step is
work. Methods take turns of five steps. Told is rank 0's median over turns, in milliseconds a step; a neighbour's noise
moves processor time less than the clock.
"""

import argparse
import multiprocessing
import os
import statistics
import sys
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path

from laconic.lab import workloads
from laconic.lab.methods import Method, parse_methods
from laconic.lab.team import KEEPS_MEMORY

METHODS = "noop;dense;torch-powersgd:4;Quantize(bits=2);Quantize(bits=4);PowerSGD(rank=16, dtype='int8')"
TURN, WARMUP = 5, 12  # steps
WHOSE = ("training", "laconic", "network")


def spent() -> dict[str, float]:
    """Seconds of a processor so far, by whose thread."""
    named = {thread.native_id: thread.name for thread in threading.enumerate()}
    told = dict.fromkeys(WHOSE, 0.0)
    for task in Path("/proc/self/task").iterdir():
        name = named.get(int(task.name), "")
        whose = "training" if name == "MainThread" else "laconic" if name.startswith("laconic") else "network"
        try:
            told[whose] += int((task / "schedstat").read_text().split()[0]) / 1e9
        except FileNotFoundError:  # it has just ended
            continue
    return told


def work(rank: int, method: str, name: str, port: int, orders: Connection) -> None:
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    from torch.nn.utils import clip_grad_norm_

    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[rank % len(os.sched_getaffinity(0))]})
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE="2")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    workload, way = workloads.find(name), Method.parse(method)
    model = workload.build(0)
    ddp = DistributedDataParallel(model, bucket_cap_mb=way.bucket_megabytes)
    handle = way.install(ddp, None)
    optimizer = workload.optimize(model)
    batches = workload.data(None).batches(workload.batch, rank, 0)

    def step() -> float:
        began = time.perf_counter()
        inputs, targets = next(batches)
        optimizer.zero_grad()
        workload.loss(ddp, inputs, targets).backward()
        if workload.clip is not None:
            clip_grad_norm_(model.parameters(), workload.clip)
        optimizer.step()
        return time.perf_counter() - began

    for _ in range(WARMUP):
        step()
    orders.send("ready")
    while orders.recv():
        before = spent()
        clock = [step() for _ in range(TURN)]
        now = spent()
        orders.send(({whose: (now[whose] - before[whose]) / TURN for whose in WHOSE}, clock))
    del handle
    os._exit(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", default="gpt", help=f"one of {', '.join(workloads.WORKLOADS)}")
    parser.add_argument("--methods", default=METHODS, type=parse_methods)
    parser.add_argument("--turns", default=12, type=int)
    parser.add_argument("--port", default=29561, type=int)
    chosen = parser.parse_args()
    os.environ.update(KEEPS_MEMORY, OMP_NUM_THREADS="1", PYTHONWARNINGS="ignore")
    context = multiprocessing.get_context("spawn")
    teams: dict[str, list[Connection]] = {}
    for index, method in enumerate(chosen.methods):
        ends = [context.Pipe() for _ in range(2)]
        for rank, (_, theirs) in enumerate(ends):
            given = (rank, method.name, chosen.workload, chosen.port + index, theirs)
            context.Process(target=work, args=given, daemon=True).start()
        teams[method.name] = [ours for ours, _ in ends]
        assert all(end.recv() == "ready" for end in teams[method.name])
    told: dict[str, list[tuple[dict[str, float], list[float]]]] = {name: [] for name in teams}
    for turn in range(chosen.turns):
        print(f"turn {turn + 1} of {chosen.turns}", file=sys.stderr, end="\r")
        for name, ends in teams.items():
            for end in ends:
                end.send(True)
            mine, _ = (end.recv() for end in ends)
            told[name].append(mine)
    for end in (end for ends in teams.values() for end in ends):
        end.send(False)
    print(f"{chosen.workload}, ms a step".ljust(40), *(f"{head:>9}" for head in (*WHOSE, "sum", "clock")))
    for name, turns in told.items():
        each = [1e3 * statistics.median(processor[whose] for processor, _ in turns) for whose in WHOSE]
        clock = 1e3 * statistics.median(seconds for _, steps in turns for seconds in steps)
        print(name.ljust(40), *(f"{figure:9.1f}" for figure in (*each, sum(each), clock)))


if __name__ == "__main__":
    main()
