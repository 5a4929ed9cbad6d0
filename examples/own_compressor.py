"""A compressor of your own: one class, no I/O, no process group; laconic carries, packs, remembers and checks it.

    python examples/own_compressor.py

Sends the mean of every stretch of `width` elements: a crude compressor whose leftover error feedback returns.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

import laconic
from laconic.comm.loopback import Loopback, converse
from laconic.compressors.fold import fold
from laconic.exchange import Exchange, Leg, Memory, Message, Op


@dataclass(frozen=True)
class Blur(laconic.Compressor):
    """One number for `width` neighbours."""

    width: int = 8

    def legs(self, layer: laconic.Layer, world: laconic.World) -> tuple[Leg, ...]:
        return (Leg(Op.SUM, world.scope, torch.float32, -(-layer.numel // self.width)),)

    def exchange(self, x: Tensor, out: Tensor, memory: Memory, world: laconic.World) -> Exchange:
        fold(x, memory)  # what was left unsent joins the gradient
        means = self._means(x)
        x.view(-1).sub_(self._spread(means, x.numel()))  # x now holds what is not sent
        total = yield Message(Op.SUM, world.scope, means / world.size)
        out.view(-1).copy_(self._spread(total, out.numel()))

    def error(self, x: Tensor) -> float:
        return float((x.flatten() - self._spread(self._means(x), x.numel())).square().sum())

    def _means(self, x: Tensor) -> Tensor:
        return torch.stack([stretch.mean() for stretch in x.flatten().split(self.width)])

    def _spread(self, means: Tensor, numel: int) -> Tensor:
        return means.repeat_interleave(self.width)[:numel]


def main() -> None:
    ranks = Loopback.ranks(2)
    gradients = [torch.randn(4, 10) for _ in ranks]
    mean = sum(gradients) / 2
    outs = [torch.empty(4, 10) for _ in ranks]
    talks = [Blur().exchange(x, o, Memory(), r.world) for x, o, r in zip(gradients, outs, ranks, strict=True)]
    said = converse(talks, ranks)
    left = sum(gradients) / 2
    assert torch.equal(outs[0], outs[1]), "every rank has the same bits"
    assert torch.allclose(outs[0] + left, mean, atol=1e-6), "what was not sent was kept"
    print(f"each rank sent {said[0][0].data.nbytes} bytes in place of {mean.nbytes}, and every rank agrees")


if __name__ == "__main__":
    main()
