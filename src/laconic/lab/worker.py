"""One rank of one method: a process that trains when it is told to, and tells what it measured.

Commands come as JSON lines on standard input, answers go as JSON lines to standard output. When the input ends, because
whoever started us is done, has crashed or was killed, so do we, even in the middle of a collective.
"""

import json
import os
import queue
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_

from laconic.comm.process_group import ProcessGroupComm
from laconic.control.record import SPANS
from laconic.integrations.prober import Prober
from laconic.lab import paced, workloads
from laconic.lab.methods import Method

Message = dict[str, Any]


class Worker:
    """The state of one rank: model, optimizer, batches, and how far it is."""

    def __init__(self, order: Message) -> None:
        self.workload = workloads.find(order["workload"])
        if order.get("batch") is not None:
            self.workload = replace(self.workload, batch=order["batch"])
        if order.get("optimizer") is not None:
            self.workload = self.workload.trained_with(order["optimizer"])
        self.method = Method.parse(order["method"])
        backend = paced.register(order["rate"]) if order["paced"] else "gloo"
        dist.init_process_group(backend, timeout=timedelta(seconds=order["timeout"]))
        self.rank = dist.get_rank()
        self.data = self.workload.data(order["data"])
        self.model = self.workload.build(order["seed"])
        # Every rank has built the same model from the seed, so nothing needs to cross the slow link before the start.
        self.ddp = DistributedDataParallel(self.model, bucket_cap_mb=self.method.bucket_megabytes, init_sync=False)
        self.handle = self.method.install(self.ddp, order["record"] if self.rank == 0 else None)
        self.prober: Prober | None = None
        if self.method.probes:
            comm = ProcessGroupComm(dist.group.WORLD)  # type: ignore[arg-type]
            comm.open(1, int(os.environ["LOCAL_WORLD_SIZE"]))
            self.prober = Prober(self.model, comm, self.method.probes)
        self.optimizer = self.workload.optimize(self.model)
        self.steps = 0
        self.spans: list[Message] = []
        self.batches = self.data.batches(self.workload.batch, self.rank, order["seed"])

    def prepared(self) -> Message:
        return {"parameters": sum(parameter.numel() for parameter in self.model.parameters())}

    def run(self, order: Message) -> Message:
        """Train for some steps; each one's time, loss and end on the wall clock."""
        if order["rate"] is not None:
            paced.set_rate(order["rate"])
        sent, computed = paced.sent(), self._computed()
        seconds, losses, ends = [], [], []
        self.spans.clear()
        for _ in range(order["steps"]):
            start = time.perf_counter()
            loss = self._step()
            seconds.append(time.perf_counter() - start)
            self.steps += 1
            losses.append(loss)
            ends.append(time.time())
        if self.prober is not None:
            self.prober.turn({name: p.grad for name, p in self.model.named_parameters() if p.grad is not None})
        counts = {"modelled_bytes": paced.sent() - sent, "computed_bytes": self._computed() - computed}
        # Spans are on the clock that laconic's own use; with the shift, whoever reads them has the wall's.
        shift = time.time() - time.perf_counter()
        return {"seconds": seconds, "losses": losses, "ends": ends, "spans": self.spans, "shift": shift, **counts}

    def _computed(self) -> int:
        """Bytes that laconic says it has sent; nothing for the others."""
        return int(self.handle.stats().wire_bytes) if self.handle is not None else 0

    def _step(self) -> float:
        marks = [time.perf_counter()]
        if self.prober is not None:
            self.prober.tracer.begin()
        inputs, targets = next(self.batches)
        self.optimizer.zero_grad()
        loss = self.workload.loss(self.ddp, inputs, targets)
        marks.append(time.perf_counter())
        if self.prober is not None:
            self.prober.tracer.backward()
        loss.backward()  # type: ignore[no-untyped-call]
        marks.append(time.perf_counter())
        if self.workload.clip is not None:
            clip_grad_norm_(self.model.parameters(), self.workload.clip)
        self.optimizer.step()
        marks.append(time.perf_counter())
        if self.steps in SPANS:
            lanes = ("forward", "backward (waits for the exchange)", "optimizer")
            for lane, start, stop in zip(lanes, marks, marks[1:], strict=False):
                self.spans.append({"step": self.steps, "lane": lane, "name": lane, "start": start, "stop": stop})
        value = loss.item()
        if self.prober is not None:
            self.prober.tracer.end()
        return value

    def evaluate(self, order: Message) -> Message:
        """Held-out loss and accuracy; rank 0 judges for all, since all hold the same model."""
        if self.rank != 0:
            return {}
        loss, accuracy = self.workload.evaluate(self.model, self.data)
        return {"loss": loss, "accuracy": accuracy, "time": time.time()}

    def stop(self, order: Message) -> Message:
        """Nothing more to do; a probe tells what it found."""
        return {} if self.prober is None else {"profile": self.prober.profile(self.workload.name).to_json()}


def _orders() -> Iterator[Message]:
    """Commands as they come. A thread of its own reads them, so that the end of the input is seen at any time."""
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def listen() -> None:
        for line in sys.stdin:
            lines.put(line)
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    while True:
        yield json.loads(lines.get())


def main() -> None:
    # Answers keep the real standard output to themselves; whatever libraries print goes with the errors.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(message: Message) -> None:
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    torch.set_num_threads(1)
    answer({"up": os.getpid()})
    worker: Worker | None = None
    for order in _orders():
        if order["do"] == "prepare":
            worker = Worker(order)
            answer(worker.prepared())
        else:
            assert worker is not None
            answer(getattr(worker, order["do"])(order))
        if order["do"] == "stop":
            os._exit(0)  # destroying groups would wait for peers that may be gone


if __name__ == "__main__":
    try:
        main()
    except Exception as error:
        import traceback

        traceback.print_exc()
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(1)
