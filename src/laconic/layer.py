"""A layer: one named parameter, as every other room knows it."""

from dataclasses import dataclass
from functools import cached_property
from math import prod

import torch


@dataclass(frozen=True)
class Layer:
    """A parameter's name, shape and dtype; the name is the only key that state is stored under.

    `shape` is in memory order, so that a flat gradient can be viewed as it for any memory format.

    >>> Layer("fc.weight", (10, 20)).numel
    200
    """

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype = torch.float32

    @cached_property
    def numel(self) -> int:
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.numel * self.dtype.itemsize

    @property
    def is_convolution(self) -> bool:
        """Three or more dimensions: a kernel that is applied at many places."""
        return len(self.shape) >= 3

    @staticmethod
    def of(name: str, parameter: torch.Tensor) -> "Layer":
        """The layer of a parameter; a channels_last or transposed one is described as it lies in memory."""
        order = sorted(range(parameter.dim()), key=parameter.stride, reverse=True)
        return Layer(name, tuple(parameter.shape[d] for d in order), parameter.dtype)
