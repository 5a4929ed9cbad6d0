"""A training script as a user writes it, for torchrun: it saves, resumes, and can be told to die once.

torchrun --nproc-per-node 2 job.py FOLDER STEPS [--die STEP] [--leave] [--let-go] [--tell]
"""

import argparse
import atexit
import gc
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from training import bits, ddp, toy, train

import laconic


def groups() -> int:
    """Process groups of this process: gloo has two threads for each."""
    names = [(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
    return names.count("pt_gloo_runloop") // 2


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("folder", type=Path)
    asked.add_argument("steps", type=int)
    asked.add_argument("--die", type=int, help="rank 1 dies here, in its first life")
    asked.add_argument("--leave", action="store_true", help="end without a word: no detach, no destroy_process_group")
    asked.add_argument("--let-go", action="store_true", help="drop the model before the group is destroyed")
    asked.add_argument("--tell", action="store_true", help="tell of every step")
    asked.add_argument("--timeout", type=float, default=20.0)
    options = asked.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=options.timeout))
    atexit.register(lambda: print(f"rank {rank}: {groups()} groups at exit", flush=True))  # after laconic's own
    rank, first_life = dist.get_rank(), os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
    model = ddp(toy())
    plan = laconic.Plan({"0.weight": laconic.TopK(density=0.1), "2.weight": laconic.PowerSGD(rank=2)})
    handle = laconic.attach(model, plan)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    start = 0
    if (options.folder / "model.pt").exists():
        saved = torch.load(options.folder / "model.pt", weights_only=True)
        model.module.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        print(f"rank {rank}: {handle.load(options.folder / str(saved['step']))}", flush=True)
        start = saved["step"]
    for step in range(start, options.steps):
        if step == options.die and rank == 1 and first_life:
            os.kill(os.getpid(), signal.SIGKILL)
        train(model, rank, [step], optimizer=optimizer)
        if options.tell:
            print(f"rank {rank} pid {os.getpid()} step {step}", flush=True)
        if step % 3 == 2:
            handle.save(options.folder / str(step + 1))
            dist.barrier()  # every rank's file is there before any names this checkpoint
            if rank == 0:
                state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}
                torch.save(state, options.folder / "partial")
                (options.folder / "partial").replace(options.folder / "model.pt")
    (options.folder / f"bits-{rank}").write_text(bits(model.parameters()))
    if options.let_go:
        del handle, model, optimizer
        gc.collect()
        dist.destroy_process_group()
    elif not options.leave:
        handle.detach()
        dist.destroy_process_group()
    print(f"rank {rank}: done", flush=True)


if __name__ == "__main__":
    main()
    sys.stdout.flush()
