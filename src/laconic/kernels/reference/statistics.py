"""What policies ask of a layer without encoding it: here the truth, at whatever cost."""

from collections.abc import Sequence

import torch
from torch import Tensor

from laconic.kernels.reference.fold import energy
from laconic.kernels.reference.quantize import quantize


def quantize_errors(x: Tensor, bucket: int, l2: bool) -> list[float]:
    errors = []
    for bits in range(1, 9):
        left = x.clone()
        codes = torch.empty(-(-x.numel() * bits // 8), dtype=torch.uint8, device=x.device)
        quantize(left, None, codes, x.new_empty(-(-x.numel() // bucket)), bits, bucket, l2, None)
        errors.append(float(energy(left)))
    return errors


def top_k_errors(x: Tensor, ks: Sequence[int]) -> list[float]:
    smallest = torch.cat([x.new_zeros(1, dtype=torch.float64), x.abs().sort().values.double().square_().cumsum(0)])
    return [float(smallest[max(0, x.numel() - k)]) for k in ks]
