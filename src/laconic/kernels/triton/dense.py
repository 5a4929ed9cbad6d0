"""Passes that treat every element alike."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from laconic.kernels.energy import Energy
from laconic.kernels.triton.launch import BLOCK, TWO_ROUNDINGS, blocks, energies, finite


@triton.jit
def _fold(x, residual, energy, n, FOLD: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n, other=0.0)
    if FOLD:
        v = v + tl.load(residual + at, mask=at < n, other=0.0).to(tl.float32)
        tl.store(x + at, v, mask=at < n)
    wide = v.to(tl.float64)
    tl.store(energy + tl.program_id(0), tl.sum(wide * wide, axis=0))


@triton.jit
def _settle(x, residual, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n, other=0.0)
    tl.store(residual + at, v, mask=at < n)
    tl.store(x + at, tl.zeros_like(v), mask=at < n)


@triton.jit
def _narrow(x, residual, code, energy, n, weight, most, FOLD: tl.constexpr, BRAIN: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n, other=0.0)
    if FOLD:
        v = v + tl.load(residual + at, mask=at < n, other=0.0).to(tl.float32)
    wide = v.to(tl.float64)
    tl.store(energy + tl.program_id(0), tl.sum(wide * wide, axis=0))
    scaled = tl.minimum(tl.maximum(v * weight, -most), most)
    if BRAIN:  # by hand, to the nearest, ties to even; code is int16
        bits = scaled.to(tl.int32, bitcast=True)
        half = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        tl.store(code + at, half.to(tl.int16), mask=at < n)
        sent = (half << 16).to(tl.float32, bitcast=True)
    else:
        tl.store(code + at, scaled.to(tl.float16), mask=at < n)
        sent = scaled.to(tl.float16).to(tl.float32)
    tl.store(x + at, v - tl.div_rn(sent, weight), mask=at < n)


@triton.jit
def _widen(code, out, n, weight, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(code + at, mask=at < n, other=0.0).to(tl.float32)
    tl.store(out + at, tl.load(out + at, mask=at < n, other=0.0) + v * weight, mask=at < n)


def energy(x: Tensor) -> Energy:
    n = x.numel()
    partial = energies(blocks(n)[0], x.device)
    if n:
        _fold[blocks(n)](x, x, partial, n, False, BLOCK)
    return float(partial.sum()) if x.is_cpu else partial.sum()


def fold(x: Tensor, residual: Tensor | None) -> Energy:
    n = x.numel()
    partial = energies(blocks(n)[0], x.device)
    if n:
        _fold[blocks(n)](x, x if residual is None else residual, partial, n, residual is not None, BLOCK)
    return finite(partial, x)[0]


def settle(x: Tensor, residual: Tensor) -> None:
    if x.numel():
        _settle[blocks(x.numel())](x, residual, x.numel(), BLOCK)


def narrow(x: Tensor, residual: Tensor | None, code: Tensor, weight: float) -> Energy:
    n = x.numel()
    partial, brain = energies(blocks(n)[0], x.device), code.dtype is torch.bfloat16
    if n:
        _narrow[blocks(n)](
            x, x if residual is None else residual, code.view(torch.int16) if brain else code, partial, n, weight,
            torch.finfo(code.dtype).max, residual is not None, brain, BLOCK, **TWO_ROUNDINGS,
        )  # fmt: skip
    total, good = finite(partial, x)
    if not good:
        code.zero_()
    return total


def widen_add(code: Tensor, out: Tensor, weight: float) -> None:
    if out.numel():
        _widen[blocks(out.numel())](code, out, out.numel(), weight, BLOCK, **TWO_ROUNDINGS)
