"""How long Auto searches: processor time of one decision, for the lab's workloads and their first gradient.

    python benchmarks/search.py [--workloads "lstm;gpt;vgg;resnet"] [--rate 200mbit] [--hosts 2]

Errors are those of a real gradient; links are a data sheet's, arithmetic is the documented model's, and the backward
pass is a stand-in of 150 ms. Least of several.
"""

import argparse
import time

import torch

from laconic import Auto, Layer
from laconic.lab import workloads
from laconic.lab.layout import Layout
from laconic.planning.buckets import buckets
from laconic.planning.candidates import candidates
from laconic.planning.link import what_if
from laconic.planning.rates import parse_rate
from laconic.planning.surroundings import Cadence, Surroundings
from laconic.runtime.watch import errors
from laconic.stats import Table
from laconic.world import World


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", default="lstm;gpt;vgg;resnet")
    parser.add_argument("--rate", default="200mbit")
    parser.add_argument("--hosts", default="2")
    asked = parser.parse_args()
    layout = Layout.parse(asked.hosts)
    world = World(0, layout.world, layout.ranks)
    torch.set_num_threads(1)
    for name in asked.workloads.split(";"):
        workload = workloads.find(name)
        model = workload.build(0)
        workload.loss(model, *next(iter(workload.data(None).batches(workload.batch, 0, 0)))).backward()
        layers = [Layer.of(name, parameter) for name, parameter in model.named_parameters()]
        auto = Auto()
        auto.start(layers, world)
        tables = {}
        for layer, parameter in zip(layers, model.parameters(), strict=True):
            rungs = tuple(core for menu in auto._menus for core in menu.get(layer.name, ()))
            energy = float(parameter.grad.square().sum())
            if rungs:
                tables[layer.name] = Table(rungs, tuple(errors(parameter.grad, rungs)), energy, energy, 1)
        order = layers[::-1]
        groups = buckets(order)
        ready = tuple(0.05 + 0.1 * (group[-1] + 1) / len(order) for group in groups)
        cadence = Cadence(tuple(tuple(order[i].name for i in group) for group in groups), ready, 0.01)
        around = Surroundings(world, what_if(world, parse_rate(asked.rate), 1e11))
        spent = []
        for _ in range(5):
            began = time.process_time()
            ranked = candidates(layers, auto._menus, tables, cadence, around, auto.budget)
            spent.append(time.process_time() - began)
        options = max(len(table.rungs) for table in tables.values())
        print(f"{name:7} {len(layers):3} layers, {len(tables):2} of them with up to {options} compressors: "
              f"{1e3 * min(spent):5.0f} ms, {len(ranked)} candidates")  # fmt: skip


if __name__ == "__main__":
    main()
