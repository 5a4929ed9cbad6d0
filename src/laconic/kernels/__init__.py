"""The arithmetic of compression: one schema per kernel, several backends, one choice."""

import logging
from functools import cache
from types import ModuleType
from typing import cast

import torch
from torch import Tensor

from laconic.kernels import reference
from laconic.kernels.schema import Kernels
from laconic.kernels.together import OneByOne, Together


def of(x: Tensor) -> Kernels:
    """The backend that serves tensors like x."""
    if x.is_cpu and x.dtype is torch.float32:
        return _on_cpu()
    if x.is_cuda and x.dtype is torch.float32:
        return _on_cuda()
    return cast(Kernels, reference)


def together(x: Tensor) -> Together:
    """The same for several layers like x that hold one conversation."""
    on = _on_cpu() if x.is_cpu else of(x)
    return _compiled() if on.name == "native" else OneByOne(on)


def lines() -> ModuleType | None:
    """`exchange.Lines` for layers on the CPU, where there are compiled kernels."""
    return _compiled_lines() if _on_cpu().name == "native" else None


@cache
def _compiled() -> Together:
    from laconic.kernels import native_together

    return cast(Together, native_together)


@cache
def _compiled_lines() -> ModuleType:
    from laconic.kernels import native_lines

    return native_lines


@cache
def _on_cpu() -> Kernels:
    """The compiled kernels, or where the package was installed without a compiler, the reference."""
    try:
        from laconic.kernels import native
    except ImportError:
        logging.getLogger(__name__).warning(
            "laconic was installed without a C++ compiler and computes in plain torch, many times slower: "
            "install a compiler for C++17 and then laconic again"
        )
        return cast(Kernels, reference)
    return cast(Kernels, native)


@cache
def _on_cuda() -> Kernels:
    """Triton comes with torch's CUDA builds; without it, the reference runs on the device."""
    try:
        from laconic.kernels import triton
    except ImportError:
        return cast(Kernels, reference)
    return cast(Kernels, triton)


__all__ = ["Kernels", "Together", "lines", "of", "reference", "together"]
