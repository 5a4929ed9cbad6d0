"""Payloads as an enemy or a bad cable would make them: an error or a bounded result, never a write out of bounds."""

import pytest
import torch
from torch import Tensor

from laconic import CorruptPayload
from laconic.compressors import Cast, Codec
from tests.contract.members import MEMBERS

CODECS = [member for member in MEMBERS if isinstance(member, Codec)]
GUARD = 64
MARK = 12345.0


def decode(codec: Codec, payload: Tensor, numel: int) -> Tensor | None:
    """What a payload means, or None if it was refused; the memory around `out` must stay as it was."""
    ground = torch.full((GUARD + numel + GUARD,), MARK)
    out = ground[GUARD : GUARD + numel].zero_()
    before = payload.clone()
    try:
        codec.decode(payload, out, 0.5)
        refused = False
    except CorruptPayload:
        refused = True
    assert torch.equal(payload, before), "decoding changed the payload"
    assert bool((ground[:GUARD] == MARK).all())
    assert bool((ground[GUARD + numel :] == MARK).all())
    return None if refused else out


def carries_floats(codec: Codec) -> bool:
    """16-bit codes are floats of the sender's: a NaN among them arrives as one, on every rank alike."""
    return isinstance(codec, Cast) or isinstance(getattr(codec, "values", None), Cast)


@pytest.mark.parametrize("codec", CODECS, ids=str)
def test_random_bytes(codec: Codec) -> None:
    rng = torch.Generator().manual_seed(1)
    for numel in (0, 1, 7, 64, 501):
        for _ in range(20):
            payload = torch.randint(256, (codec.nbytes(numel),), dtype=torch.uint8, generator=rng)
            out = decode(codec, payload, numel)
            assert out is None or carries_floats(codec) or bool(torch.isfinite(out).all())


@pytest.mark.parametrize("codec", CODECS, ids=str)
def test_valid_payloads_with_a_few_bytes_changed(codec: Codec) -> None:
    rng = torch.Generator().manual_seed(2)
    for numel in (1, 64, 501):
        valid = torch.zeros(codec.nbytes(numel), dtype=torch.uint8)
        codec.encode(torch.randn(numel, generator=rng), valid, None, 7)
        assert decode(codec, valid, numel) is not None, "what was encoded is accepted"
        for trial in range(60):
            payload = valid.clone()
            reach = 24 if trial % 2 else payload.numel()  # headers half of the time
            for _ in range(1 + trial % 4):
                at = int(torch.randint(min(reach, payload.numel()), (), generator=rng))
                payload[at] = int(torch.randint(256, (), generator=rng))
            out = decode(codec, payload, numel)
            assert out is None or carries_floats(codec) or bool(torch.isfinite(out).all())


@pytest.mark.parametrize("fill", [0, 1, 127, 128, 255])
@pytest.mark.parametrize("codec", CODECS, ids=str)
def test_constant_bytes(codec: Codec, fill: int) -> None:
    for numel in (1, 9, 333):
        payload = torch.full((codec.nbytes(numel),), fill, dtype=torch.uint8)
        out = decode(codec, payload, numel)
        assert out is None or carries_floats(codec) or bool(torch.isfinite(out).all())
