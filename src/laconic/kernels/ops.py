"""The kernels as torch operators, `torch.ops.laconic.*`, for code that torch.compile traces.

A call through torch's dispatcher costs some 10 us against 0.5 us for a direct one, so laconic itself does not use
them and nothing is registered until `register` is called. Numbers that a kernel returns come as one float64 tensor.
"""

import re
from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from laconic import kernels

# Arguments as torch's schema language writes them, `!` for what is written to; and how many numbers come back.
OPERATORS = {
    "energy": ("Tensor x", 1),
    "fold": ("Tensor(a!) x, Tensor? residual", 1),
    "settle": ("Tensor(a!) x, Tensor(b!) residual", 0),
    "quantize": (
        "Tensor(a!) x, Tensor? residual, Tensor(b!) codes, Tensor(c!) steps, int bits, int bucket, bool l2, "
        "int? seed", 1,
    ),
    "dequantize_add": ("Tensor codes, Tensor steps, Tensor(a!) out, int bits, int bucket, float weight", 0),
    "requantize": (
        "Tensor codes, Tensor steps, Tensor(a!) x, Tensor(b!) codes_out, Tensor(c!) steps_out, int bits, int bucket, "
        "bool l2, int? seed", 1,
    ),
    "top_k": ("Tensor(a!) x, Tensor? residual, Tensor(b!) indices, Tensor(c!) values", 1),
    "sampled_top_k": ("Tensor(a!) x, Tensor? residual, int k, Tensor(b!) indices, Tensor(c!) values", 2),
    "threshold": ("Tensor(a!) x, Tensor? residual, int k, Tensor(b!) indices, Tensor(c!) values", 2),
    "take": ("Tensor(a!) x, Tensor indices, Tensor(b!) values", 0),
    "scatter_add": ("Tensor indices, Tensor values, Tensor(a!) out, float weight", 0),
    "sign": ("Tensor(a!) x, Tensor? residual, Tensor(b!) bits, bool two_sided", 3),
    "unsign_add": ("Tensor bits, float clear, float set_, Tensor(a!) out, float weight", 0),
    "natural": ("Tensor(a!) x, Tensor? residual, Tensor(b!) codes, int seed", 2),
    "unnatural_add": ("Tensor codes, int exponent, Tensor(a!) out, float weight", 0),
    "adacomp": ("Tensor(a!) x, Tensor? residual, int bin, Tensor(b!) words", 3),
    "unadacomp_add": ("Tensor words, int count, float scale, int bin, Tensor(a!) out, float weight", 0),
    "ternary": ("Tensor(a!) x, Tensor? residual, Tensor(b!) payload, int bucket, int each", 1),
    "unternary_add": ("Tensor payload, Tensor(a!) out, int bucket, int each, float weight", 0),
    "narrow": ("Tensor(a!) x, Tensor? residual, Tensor(b!) code, float weight", 1),
    "widen_add": ("Tensor code, Tensor(a!) out, float weight", 0),
}  # fmt: skip


def _real(name: str, deciding: int, results: int) -> Callable[..., Tensor | None]:
    def run(*arguments: Any) -> Tensor | None:
        found = getattr(kernels.of(arguments[deciding]), name)(*arguments)
        return torch.tensor(found, dtype=torch.float64).view(results) if results else None

    return run


def _fake(results: int) -> Callable[..., Tensor | None]:
    return lambda *arguments: torch.empty(results, dtype=torch.float64) if results else None


@cache
def register() -> SimpleNamespace:
    """Make the operators known to torch, once; `torch.ops.laconic`.

    >>> x = torch.ones(4)
    >>> register().fold(x, torch.ones(4)), x
    (tensor([16.], dtype=torch.float64), tensor([2., 2., 2., 2.]))
    """
    for name, (arguments, results) in OPERATORS.items():
        names = re.findall(r"(\w+)(?:,|$)", arguments)
        deciding = names.index("x" if "x" in names else "out")
        qualified = f"laconic::{name}"
        torch.library.define(qualified, f"({arguments}) -> {'Tensor' if results else '()'}")
        torch.library.impl(qualified, "default", _real(name, deciding, results))
        torch.library.register_fake(qualified, _fake(results))
    return torch.ops.laconic  # type: ignore[return-value]
