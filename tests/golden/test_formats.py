"""Wire formats, pinned: a change of format must be noticed, and needs a new version of the library on every rank."""

import pytest
import torch

from laconic import AdaComp, Ternary
from laconic.compressors import Codec
from laconic.compressors.expression import parse

X = (0.5, -1.0, 0.25, 0.0, 2.0, -0.125, 1.5, -3.0, 0.75, -0.5, 0.0625, -1.75)
SEED = 12345

PAYLOADS = (
    ("Cast(dtype='bf16')", "003f80bf803e0000004000bec03f40c0403f00bf803de0bf"),
    ("Cast(dtype='fp16')", "003800bc00340000004000b0003e00c2003a00b8002c00bf"),
    ("Quantize(bits=4, bucket=8)", "b76ddb3e0000803e58787c0b5a070000"),
    ("Quantize(bits=1, bucket=8)", "0000863f0000443f5d05000000000000"),
    ("Quantize(bits=3, bucket=8, scaling='l2')", "ffb8ad3f4010283fd3c631d400000000"),
    ("Quantize(bits=4, bucket=8, stochastic=True)", "b76ddb3e0000803e58777b0b5a070000"),
    ("Quantize(bits=1, bucket=8, stochastic=True)", "000040400000e03f5502000000000000"),
    ("TopK(density=0.25)", "03000000000000003930000000000000163c00000000000000000040000040c00000e0bf00000000"),
    (
        "TopK(density=0.25, selection='sampled')",
        "03000000000000003930000000000000940006000000000000000040000040c00000e0bf00000000",
    ),
    ("Threshold(density=0.2)", "02000000000000003930000000000000140002000000000000000040000040c00000000000000000"),
    ("RandomK(density=0.25)", "030000000000000039300000000000000000803e000040c00000403f00000000"),
    ("Sign(scale='mean')", "000074bf0000743f5d05000000000000"),
    ("Sign(scale='two')", "3333a3bf9224393f5d05000000000000"),
    ("Natural", "02000000000000007cfd7b007efa7dff7cfc79fe00000000"),
    ("AdaComp(bin=4)", "06000000060000005555f53f00000000000700080f0f00000000000000000000"),
    (
        "AdaComp(bin=100)",
        "04000000040000000000404000000000100018001d002f00000000000000000000000000000000000000000000000000",
    ),
    ("Ternary(bits=2.0, bucket=64)", "040000004040d85c0000000000000000"),
    (
        "Chain(TopK(density=0.25), Quantize(bits=4))",
        "03000000000000003930000000000000163c000000000000b76ddb3e000000000c03000000000000",
    ),
    ("Chain(RandomK(density=0.5), Natural)", "060000000000000039300000000000000200000000000000fd007efe7cfd0000"),
)


@pytest.mark.parametrize(("text", "payload"), PAYLOADS, ids=[text for text, _ in PAYLOADS])
def test_the_bytes_of_every_codec(text: str, payload: str) -> None:
    codec = parse(text)
    assert isinstance(codec, Codec)
    x, written = torch.tensor(X), torch.zeros(codec.nbytes(len(X)), dtype=torch.uint8)
    codec.encode(x, written, None, SEED)
    assert bytes(written.tolist()).hex() == payload
    arrived = torch.zeros(len(X))
    codec.decode(written, arrived, 1.0)
    torch.testing.assert_close(arrived + x, torch.tensor(X), rtol=2.0**-22, atol=2.0**-22 * 3)


def test_adacomp_as_published() -> None:
    """The worked example: G, its bins' largest, the soft threshold, the words, and the residue."""
    residue = torch.tensor([0.5, -0.1, 0.0, 0.3, 0.05, 0.2, -0.4, 0.0])
    x = torch.tensor([0.1, -0.4, 0.05, 0.35, 0.0, 0.25, 0.1, -0.02])
    codec = AdaComp(bin=4)
    payload = torch.zeros(codec.nbytes(8), dtype=torch.uint8)
    codec.encode(x, payload, residue, 0)
    wanted, sent = payload[:8].view(torch.int32).tolist()
    assert (wanted, sent) == (4, 4)
    assert float(payload[8:12].view(torch.float32)) == pytest.approx(0.55, rel=2.0**-23)
    # index << 2 | last of its bin << 1 | negative: 0 +, 1 -, 3 + and last; then 1 + and last
    assert payload[16:20].tolist() == [0b000000, 0b000101, 0b001110, 0b000110]
    assert not payload[20:].any()
    rounding = 2.0**-24
    torch.testing.assert_close(
        x, torch.tensor([0.05, 0.05, 0.05, 0.1, 0.05, -0.1, -0.3, -0.02]), rtol=0, atol=4 * rounding
    )
    arrived = torch.zeros(8)
    codec.decode(payload, arrived, 1.0)
    torch.testing.assert_close(arrived, torch.tensor([0.55, -0.55, 0, 0.55, 0, 0.55, 0, 0]), rtol=2.0**-23, atol=0)


def test_adacomp_sends_what_fits_and_keeps_the_rest() -> None:
    """A payload with room for three words: the fourth element stays where it was."""
    residue = torch.tensor([0.5, -0.1, 0.0, 0.3, 0.05, 0.2, -0.4, 0.0])
    x = torch.tensor([0.1, -0.4, 0.05, 0.35, 0.0, 0.25, 0.1, -0.02])
    whole = x + residue
    codec = AdaComp(bin=4)
    payload = torch.zeros(16 + 3, dtype=torch.uint8)
    codec.encode(x, payload, residue, 0)
    assert payload[:8].view(torch.int32).tolist() == [4, 3]
    arrived = torch.zeros(8)
    codec.decode(payload, arrived, 1.0)
    assert arrived[5] == 0
    assert x[5] == whole[5]
    torch.testing.assert_close(arrived + x, whole, rtol=0, atol=2.0**-23)


def test_adacomp_learns_its_room_from_the_busiest_rank() -> None:
    codec, warm = AdaComp(bin=4), {}
    rows = torch.zeros(2, 24, dtype=torch.uint8)
    rows[1, :4] = torch.tensor([100], dtype=torch.int32).view(torch.uint8)
    codec.learn(rows, warm)
    assert int(warm["words"]) == 125 + 16
    codec.learn(torch.zeros(2, 24, dtype=torch.uint8), warm)
    assert int(warm["words"]) == 126, "less by a tenth at most"


def test_ternary_by_hand() -> None:
    """Eight elements whose largest is 4: those of 2 or more go as 4, in a bucket's 16 bytes."""
    x = torch.tensor([0.5, -2.5, 0.0, 4.0, 1.75, 2.0, -0.25, -3.0])
    codec = Ternary(bits=2.0, bucket=64)
    payload = torch.zeros(codec.nbytes(8), dtype=torch.uint8)
    assert float(codec.encode(x, payload, None, 0)) == pytest.approx(0.25 + 6.25 + 16 + 3.0625 + 4 + 0.0625 + 9)
    # Four of eight: gaps 1, 1, 1, 1, of which no low bits are apart: their signs, then in unary 01 four times.
    assert payload.tolist() == [4, 0, 0, 0, 128, 64, 0b1001, 0b10101010, 0, 0, 0, 0, 0, 0, 0, 0]
    assert x.tolist() == [0.5, 1.5, 0.0, 0.0, 1.75, -2.0, -0.25, 1.0]
    arrived = torch.zeros(8)
    codec.decode(payload, arrived, 1.0)
    assert arrived.tolist() == [0.0, -4.0, 0.0, 4.0, 0.0, 4.0, 0.0, -4.0]


def test_ternary_takes_a_longer_step_where_there_is_no_room() -> None:
    """A thousand elements of which 400 are half the largest or more, and room for some 60."""
    x = torch.linspace(-1, 1, 1001).abs() ** 2 * 0.75
    x[500] = 1.0
    whole = x.clone()
    codec = Ternary(bits=0.3, bucket=1024)
    payload = torch.zeros(codec.nbytes(1001), dtype=torch.uint8)
    codec.encode(x, payload, None, 0)
    arrived = torch.zeros(1001)
    codec.decode(payload, arrived, 1.0)
    step = float(payload[2:6].clone().view(torch.float32))
    assert step in [1 + level / 16 for level in range(1, 16)]
    assert torch.equal(arrived, torch.where(whole >= step / 2, step, 0.0))
    assert torch.equal(arrived + x, torch.where(whole >= step / 2, step + (whole - step), whole))


def test_ternary_sends_the_first_of_too_many_equals() -> None:
    x = torch.full((1024,), -0.5)
    codec = Ternary(bits=0.3, bucket=1024)
    payload = torch.zeros(codec.nbytes(1024), dtype=torch.uint8)
    codec.encode(x, payload, None, 0)
    sent = x == 0
    assert 0 < int(sent.sum()) < 1024
    assert bool(sent[: int(sent.sum())].all())
    assert bool((x[int(sent.sum()) :] == -0.5).all())
