"""Kernels for several layers at once: the bytes that each layer alone would give, side by side."""

from collections.abc import Callable, Sequence
from types import ModuleType

import pytest
import torch
from torch import Tensor

from laconic.errors import CorruptPayload
from laconic.kernels import reference
from laconic.kernels.energy import Energy
from laconic.kernels.payload import (
    BRAIN,
    EXACT,
    IN_3_BITS,
    IN_4_BITS,
    IN_6_BITS,
    IN_8_BITS,
    Form,
    quantized_bytes,
    steps_and_codes,
    ternary_bytes,
)
from laconic.kernels.reference.low_rank import wide
from laconic.kernels.together import OneByOne, Together

EPS = 2.0**-24
Code = Callable[[Together, list[Tensor], list[Tensor | None], Tensor], Sequence[Energy]]
Decode = Callable[[Together, Tensor, list[Tensor]], None]
SIZES = (1, 7, 512, 513, 0, 5000)
SHAPES = ((40, 64), (16, 16), (3, 700), (96, 33), (300, 17))
FORMS = (EXACT, BRAIN, IN_8_BITS, IN_6_BITS, IN_4_BITS, IN_3_BITS)


@pytest.fixture
def together(native: ModuleType) -> Together:
    """The compiled ones, under each instruction set."""
    from laconic.kernels import native_together

    return native_together  # type: ignore[return-value]


def _flat(seed: int) -> tuple[list[Tensor], list[Tensor | None]]:
    rng = torch.Generator().manual_seed(seed)
    xs = [torch.randn(n, generator=rng) * 10.0 ** (i - 2) for i, n in enumerate(SIZES)]
    residuals = [torch.randn(n, generator=rng) if i % 2 else None for i, n in enumerate(SIZES)]
    return xs, residuals


def _alike(together: Together, seed: int, size: int, code: Code, decode: Decode) -> None:
    """What layers say together, leave and receive is what each would alone: against the reference, one by one."""
    told = []
    for on in (OneByOne(reference), together):
        xs, residuals = _flat(seed)
        payload = torch.full((size,), 0xA5, dtype=torch.uint8)
        energies = code(on, xs, residuals, payload)
        wide = torch.zeros(3, size + 16, dtype=torch.uint8)
        wide[:, 8:-8] = payload
        outs = [torch.full((n,), 7.0) for n in SIZES]
        decode(on, wide[:, 8:-8], outs)
        told.append((payload, xs, outs, energies))
    (bytes_, left, means, energies), (same_bytes, same_left, same_means, same_energies) = told
    assert torch.equal(bytes_, same_bytes)
    assert energies == pytest.approx(same_energies, rel=1e-12)
    assert all(torch.equal(a, b) for a, b in zip(left, same_left, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(means, same_means, strict=True))


@pytest.mark.parametrize("seeded", [False, True])
@pytest.mark.parametrize("l2", [False, True])
@pytest.mark.parametrize("bits", [1, 2, 3, 4, 8])
def test_quantized_layers_lie_side_by_side(together: Together, bits: int, l2: bool, seeded: bool) -> None:
    bucket, seeds = 64, [11 * i for i in range(len(SIZES))] if seeded else []
    _alike(
        together,
        bits,
        sum(quantized_bytes(n, bits, bucket) for n in SIZES),
        lambda on, xs, residuals, payload: on.quantize(xs, residuals, payload, bits, bucket, l2, seeds),
        lambda on, payloads, outs: on.dequantize(payloads, outs, bits, bucket, 1 / 3),
    )


@pytest.mark.parametrize("each", [16, 40, 200])
def test_ternary_layers_lie_side_by_side(together: Together, each: int) -> None:
    _alike(
        together,
        each,
        sum(ternary_bytes(n, 512, each) for n in SIZES),
        lambda on, xs, residuals, payload: on.ternary(xs, residuals, payload, 512, each),
        lambda on, payloads, outs: on.unternary(payloads, outs, 512, each, 1 / 3),
    )


def test_a_bucket_that_can_not_have_been_sent_is_refused(together: Together) -> None:
    payloads = torch.zeros(2, sum(ternary_bytes(n, 512, 40) for n in SIZES), dtype=torch.uint8)
    payloads[1, -1] = 7  # behind the last bucket: nobody reads it
    together.unternary(payloads, [torch.empty(n) for n in SIZES], 512, 40, 0.5)
    payloads[1, :2] = torch.tensor([2, 0])  # two elements in a layer of one
    with pytest.raises(CorruptPayload, match="can not have been sent"):
        together.unternary(payloads, [torch.empty(n) for n in SIZES], 512, 40, 0.5)


def test_what_is_not_finite_spoils_its_own_layer_only(together: Together) -> None:
    xs, residuals = _flat(0)
    xs[3][100] = torch.inf
    payload = torch.empty(sum(quantized_bytes(n, 4, 64) for n in SIZES), dtype=torch.uint8)
    energies = together.quantize(xs, residuals, payload, 4, 64, False, [])
    assert [i for i, energy in enumerate(energies) if not torch.isfinite(torch.tensor(energy))] == [3]
    assert not xs[3].any()


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 3e38])
def test_a_step_that_can_not_have_been_sent_stops_all_layers(together: Together, bad: float) -> None:
    payloads = torch.zeros(2, sum(quantized_bytes(n, 4, 64) for n in SIZES), dtype=torch.uint8)
    at = sum(quantized_bytes(n, 4, 64) for n in SIZES[:-1])
    steps_and_codes(payloads[1, at:], SIZES[-1], 4, 64)[0][3] = bad
    outs = [torch.full((n,), 7.0) for n in SIZES]
    with pytest.raises(CorruptPayload, match="can not have been sent"):
        together.dequantize(payloads, outs, 4, 64, 0.5)
    assert all(bool((out == 7.0).all()) for out in outs)
    xs, ps, qs, _ = _matrices(3)
    factors = torch.zeros(2, sum(IN_8_BITS.room(len(p), 3) for p in ps), dtype=torch.uint8)
    factors[1, :8].view(torch.float32)[1] = bad
    message = torch.empty(sum(IN_8_BITS.room(len(q), 3) for q in qs), dtype=torch.uint8)
    before = [x.clone() for x in xs]
    with pytest.raises(CorruptPayload, match="can not have been sent"):
        together.turn(factors, xs, ps, qs, message, IN_8_BITS, IN_8_BITS)
    assert all(torch.equal(x, same) for x, same in zip(xs, before, strict=True))


def _matrices(rank: int) -> tuple[list[Tensor], list[Tensor], list[Tensor], list[Tensor | None]]:
    rng = torch.Generator().manual_seed(rank)
    xs = [torch.randn(shape, generator=rng) for shape in SHAPES]
    residuals = [torch.randn(rows * columns, generator=rng) if rows > 20 else None for rows, columns in SHAPES]
    ranks = [min(rank, *shape) for shape in SHAPES]
    ps = [torch.full((min(shape), r), 7.0) for shape, r in zip(SHAPES, ranks, strict=True)]
    qs = [torch.randn(max(shape), r, generator=rng) for shape, r in zip(SHAPES, ranks, strict=True)]
    return xs, ps, qs, residuals


def _played(on: Together, rank: int, form: Form) -> dict[str, list[Tensor]]:
    """An iteration of one rank that hears itself twice; everything that it wrote."""
    xs, ps, qs, residuals = _matrices(rank)
    first = torch.zeros(sum(form.room(*p.shape) for p in ps), dtype=form.dtype)
    second = torch.zeros(sum(form.room(*q.shape) for q in qs), dtype=form.dtype)
    warm = [q.clone() for q in qs]
    on.sketch(xs, residuals, warm, first, form)
    folded = [x.clone() for x in xs]
    heard = torch.stack([first, first]) if form.coded else first * 2
    on.turn(heard, xs, ps, qs, second, form, form)
    mine = [q.clone() for q in qs]
    on.leave(xs, ps, qs)
    outs = [torch.full_like(x, 7.0) for x in xs]
    on.product(torch.stack([second, second]) if form.coded else second * 2, ps, qs, outs, 0.5, form)
    return {"folded": folded, "left": xs, "p": ps, "mine": mine, "q": qs, "outs": outs, "said": [first, second]}


@pytest.mark.parametrize("rank", [1, 3, 16])
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_a_power_iteration_sends_what_it_takes_away(together: Together, rank: int, form: Form) -> None:
    """Sums of n products err by n * eps of their magnitudes (Higham, 3.1); p is orthonormal, so that none exceeds 1."""
    for on in (OneByOne(reference), together):
        told = _played(on, rank, form)
        keys = ("folded", "left", "p", "mine", "q", "outs")
        for each in zip(*(told[key] for key in keys), strict=True):
            own = each[2].shape[1]
            folded, left, out = (wide(each[i]) for i in (0, 1, 5))
            p, mine, q = each[2:5]
            assert bool(((p.T @ p - torch.eye(own)).abs() <= 16 * len(p) * EPS).all())
            size = p.double().abs() @ mine.double().abs().T + folded.double().abs()
            gap = (left.double() + p.double() @ mine.double().T - folded.double()).abs()
            assert bool((gap <= (own + 4) * EPS * size).all())
            assert torch.equal(q, mine), "what all ranks say alike is what each meant"
            assert bool(((out.double() - p.double() @ q.double().T).abs() <= (own + 2) * EPS * size).all())
            exact = folded.double().T @ p.double()
            rounding = {
                EXACT: 0.0,
                BRAIN: 2.0**-8,
                IN_8_BITS: 0.5 / 127 + 1e-5,
                IN_6_BITS: 0.5 / 31 + 1e-5,
                IN_4_BITS: 0.5 / 7 + 1e-5,
                IN_3_BITS: 0.5 / 3 + 1e-5,
            }[form]
            bound = rounding * exact.abs().amax(0) + (len(p) + 2) * EPS * (folded.double().abs().T @ p.double().abs())
            assert bool(((mine.double() - exact).abs() <= bound + 1e-30).all())


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_every_instruction_set_says_the_same(form: Form) -> None:
    pytest.importorskip("laconic.kernels.native", exc_type=ImportError)
    from laconic.kernels import _native, native_together

    told = []
    for chosen in _native.instruction_sets():
        _native.choose(chosen)
        told.append(_played(native_together, 5, form))  # type: ignore[arg-type]
    _native.choose(_native.instruction_sets()[0])
    for other in told[1:]:
        for key, values in told[0].items():
            assert all(torch.equal(a, b) for a, b in zip(values, other[key], strict=True)), key


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_what_compiled_products_do_not_suit_is_done_by_torch(form: Form) -> None:
    pytest.importorskip("laconic.kernels.native", exc_type=ImportError)
    from laconic.kernels import native, native_together

    assert native.MOST_RANK < 40
    ours, theirs = _played(native_together, 40, form), _played(OneByOne(native), 40, form)  # type: ignore[arg-type]
    for key, values in ours.items():
        assert all(torch.equal(a, b) for a, b in zip(values, theirs[key], strict=True)), key


@pytest.mark.parametrize(
    "what", ["plain", "zeros", "one zero column", "dependent", "tiny", "large", "square", "one row"]
)
def test_an_orthonormal_basis(native: ModuleType, what: str) -> None:
    """Orthonormal to rounding whatever comes, and what came lies in it; a direction that is lost is replaced."""
    from laconic.kernels import _native

    rows, rank = {"square": (6, 6), "one row": (1, 1)}.get(what, (300, 6))
    given = torch.randn(rows, rank, generator=torch.Generator().manual_seed(3))
    if what == "zeros":
        given.zero_()
    if what == "one zero column":
        given[:, 2] = 0
    if what == "dependent":
        given[:, 4] = 3 * given[:, 1] - given[:, 0]
    given *= {"tiny": 1e-36, "large": 1e34}.get(what, 1.0)
    basis = given.clone()
    _native.orthonormal(basis.data_ptr(), rows, rank)
    assert bool(((basis.T @ basis - torch.eye(rank)).abs() <= 16 * rows * EPS).all())
    scaled = given.double() / given.double().abs().max().clamp_min(1e-300)
    outside = scaled - basis.double() @ (basis.double().T @ scaled)
    assert float(outside.abs().max()) <= 16 * rows * EPS


def test_bytes_are_laid_spread_and_added(together: Together) -> None:
    parts = [torch.arange(5.0), torch.arange(3, dtype=torch.uint8), torch.randn(2, 2)]
    for on in (OneByOne(reference), together):
        room = torch.full((48,), 9, dtype=torch.uint8)
        on.lay(parts, room)
        assert torch.equal(room[:20].view(torch.float32), parts[0])
        assert torch.equal(room[20:23], parts[1])
        assert torch.equal(room[23:39].clone().view(torch.float32), parts[2].view(-1))
        assert not room[39:].any()
        outs = [torch.empty(2), torch.empty(3, 1)]
        on.spread(parts[0], outs)
        assert torch.equal(torch.cat([out.view(-1) for out in outs]), parts[0])
        rows = torch.stack([parts[0], 10 * parts[0], parts[0]]).view(torch.uint8)
        assert on.add_rows(rows[:, 4:], 3) == [12.0, 24.0, 36.0]
