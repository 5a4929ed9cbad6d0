"""AdaComp (arXiv 1712.02679): a compressor that sets its own rate from local activity."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

import torch
from torch import Tensor

from laconic import kernels
from laconic.compressors import check
from laconic.compressors.codec import Codec
from laconic.errors import CorruptPayload
from laconic.kernels.energy import Energy
from laconic.kernels.payload import aligned
from laconic.kernels.plausible import plausible
from laconic.layer import Layer

HEADER = 16  # int32: words wanted, words sent; float32: scale; four bytes spare
SLACK = 1.25  # room for the next step, as a multiple of what the busiest rank wanted in this one
DECAY = 0.9  # and no faster than this towards less


@dataclass(frozen=True)
class AdaComp(Codec):
    """Elements that would top their bin if the fresh gradient came once more, as sign times one scale.

    `bin` is 50 for convolutions and 500 for other layers unless given. How many elements go is up to the data: the
    payload has room for a quarter more than the busiest rank wanted last, and what does not fit stays in the residual.

    >>> AdaComp().for_layer(Layer("conv", (64, 32, 3, 3)))
    AdaComp(bin=50)
    """

    bin: int | None = None

    variable = True

    def __post_init__(self) -> None:
        if self.bin is not None:
            check.whole("bin", self.bin, 2, 16383)

    def for_layer(self, layer: Layer) -> "AdaComp":
        return self if self.bin is not None else AdaComp(50 if layer.is_convolution else 500)

    @property
    def length(self) -> int:
        """Elements in a bin."""
        return self.bin or 500

    @property
    def _word_bytes(self) -> int:
        return 1 if self.length < 64 else 2

    def _most_words(self, numel: int) -> int:
        return numel + ceil(numel / self.length)

    def nbytes(self, numel: int, warm: Mapping[str, Tensor] | None = None) -> int:
        words = self._most_words(numel)
        if warm and "words" in warm:
            words = min(words, int(warm["words"]))
        return HEADER + aligned(self._word_bytes * words)

    def encode(self, x: Tensor, payload: Tensor, residual: Tensor | None, seed: int) -> Energy:
        energy, scale, wanted = kernels.of(x).adacomp(x, residual, self.length, payload[HEADER:])
        sent = min(wanted, (payload.numel() - HEADER) // self._word_bytes)
        payload[:8].view(torch.int32).copy_(torch.tensor([wanted, sent]))
        payload[8:HEADER].view(torch.float32).copy_(torch.tensor([scale, 0.0]))
        return energy

    def decode(self, payload: Tensor, out: Tensor, weight: float) -> None:
        wanted, sent = payload[:8].view(torch.int32).tolist()
        if not 0 <= sent <= wanted <= self._most_words(out.numel()):
            raise CorruptPayload(f"{sent} words of {wanted} are announced for {out.numel()} elements")
        plausible(payload[8:12].view(torch.float32))
        scale = float(payload[8:12].view(torch.float32))
        kernels.of(out).unadacomp_add(payload[HEADER:], sent, scale, self.length, out, weight)

    def learn(self, payloads: Tensor, warm: dict[str, Tensor]) -> None:
        wanted = int(payloads[:, :4].contiguous().view(torch.int32).max())
        before = int(warm["words"]) if "words" in warm else 0
        warm["words"] = torch.tensor(max(ceil(SLACK * wanted) + 16, int(DECAY * before)))
