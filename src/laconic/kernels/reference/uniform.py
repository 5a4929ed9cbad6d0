"""Random numbers that need no state."""

import torch
from torch import Tensor

MASK = 0xFFFFFFFF


def uniform(seed: int, numel: int, device: torch.device | None = None) -> Tensor:
    """Counter-based numbers in [0, 1) with 24 bits: element i depends on (seed, i) alone."""
    z = (torch.arange(numel, dtype=torch.int64, device=device) * 0x9E3779B9 + (seed & MASK)) & MASK
    z = ((z ^ z >> 16) * 0x21F0AAAD) & MASK
    z = ((z ^ z >> 15 ^ (seed >> 32 & MASK)) * 0x735A2D97) & MASK
    z = z ^ z >> 15
    return (z >> 8).float() * 2.0**-24
