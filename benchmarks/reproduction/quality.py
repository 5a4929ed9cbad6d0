"""Train cells: two ranks on this machine's loopback, each cell with a model, batches and a method of its own.

Quality and bytes do not depend on how busy the machine is. Times are not taken here, but for GraVAC, which decides by
them: its link is held to a rate by the lab's paced network.
"""

import json
import os
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_

import laconic
from laconic.lab import paced, workloads
from laconic.lab.matrix import Row
from reproduction.cells import Cell

RANKS = 2
TOGETHER = 4  # cells
SETTLED = 0.2  # the share of a run after which the rates of layers are counted


class Rows:
    """What has been trained, one JSON object a line. A torn last line, left by a kill, is dropped."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self.rows: list[Row] = []
        for line in path.read_text().splitlines() if path.exists() else []:
            try:
                self.rows.append(json.loads(line))
            except ValueError:
                break
        path.write_text("".join(json.dumps(row) + "\n" for row in self.rows))

    def of(self, cell: Cell) -> Row | None:
        return next((row for row in self.rows if row["cell"] == cell.key()), None)


def train_all(wanted: Sequence[Cell], rows: Rows, files: Mapping[str, str | None]) -> None:
    """Train what is missing, a few cells in the same processes: DDP cannot let go of a hook, so their memory grows."""
    missing = [cell for cell in wanted if rows.of(cell) is None]
    for workload in dict.fromkeys(cell.workload for cell in missing):
        own = [cell for cell in missing if cell.workload == workload]
        for start in range(0, len(own), TOGETHER):
            mp.spawn(_rank, (own[start : start + TOGETHER], str(rows.path), files[workload], _port()), nprocs=RANKS)


def _port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _rank(rank: int, batch: Sequence[Cell], path: str, file: str | None, port: int) -> None:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    address = f"tcp://127.0.0.1:{port}"
    dist.init_process_group(paced.register(0), init_method=address, rank=rank, world_size=RANKS)
    data = workloads.find(batch[0].workload).data(file)
    for cell in batch:
        paced.set_rate(cell.link or 0)
        began = time.monotonic()
        row = train(cell, data, rank)
        if rank == 0:
            row |= {"cell": cell.key(), "minutes": round((time.monotonic() - began) / 60, 2)}
            with Path(path).open("a") as output:
                output.write(json.dumps(row) + "\n")
            print(f"{cell.workload} {cell.seed} {cell.method}: {row['evaluations'][-1]}", flush=True)
    dist.barrier()
    os._exit(0)  # every cell's lanes have threads of their own, and nothing is left to say


def train(cell: Cell, data: workloads.Data, rank: int) -> Row:
    """One run, and what came of it."""
    workload = replace(workloads.find(cell.workload), batch=cell.batch)
    module = workload.build(cell.seed)
    model = DistributedDataParallel(module, init_sync=False)
    sent: list[int] = []

    def listen(event: Mapping[str, Any]) -> None:
        if event["event"] == "step":
            sent.append(event["wire_bytes"])

    handle = laconic.attach(model, cell.method, metrics=listen)
    optimizer = workload.optimize(module)
    batches = data.batches(cell.batch, rank, cell.seed)
    losses: list[float] = []
    evaluations: list[tuple[int, float, float]] = []
    early: dict[str, int] = {}
    for step in range(1, cell.steps + 1):
        optimizer.zero_grad()
        loss = workload.loss(model, *next(batches))
        loss.backward()
        if workload.clip is not None:
            clip_grad_norm_(module.parameters(), workload.clip)
        optimizer.step()
        losses.append(loss.item())
        if step == round(SETTLED * cell.steps):
            early = {name: layer.wire_bytes for name, layer in handle.stats().layers.items()}
        if step % cell.every == 0 and rank == 0:
            evaluations.append((step, *(round(figure, 5) for figure in workload.evaluate(module, data))))
    stats = handle.stats()
    later = cell.steps - round(SETTLED * cell.steps)
    layers = {
        name: {
            "shape": list(module.get_parameter(name).shape),
            "bytes": (layer.wire_bytes - early[name]) / later,
            "dense": layer.dense_bytes / cell.steps,
        }
        for name, layer in stats.layers.items()
    }
    changes = [[c.step, c.why, dict(c.predicted), dict(c.measured)] for c in handle.history]
    handle.detach()
    means = [round(sum(losses[i : i + 10]) / len(losses[i : i + 10]), 4) for i in range(0, len(losses), 10)]
    return {"losses": means, "evaluations": evaluations, "sent": sent, "layers": layers, "changes": changes}
