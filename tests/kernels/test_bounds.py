"""What comes over the network may be anything: a decoder raises CorruptPayload or stays inside its output."""

from types import ModuleType

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from laconic.errors import CorruptPayload
from laconic.kernels import reference
from laconic.kernels.index import code_bytes
from laconic.kernels.payload import ternary_bytes

GUARD = 64  # elements on either side of an output that no decoder may touch
ANY = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def _bytes(data: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.zeros(0, dtype=torch.uint8)


@ANY
@given(n=st.integers(0, 200), room=st.integers(0, 200), count=st.integers(0, 200), data=st.data())
def test_index_codes(native: ModuleType, n: int, room: int, count: int, data: st.DataObject) -> None:
    room = min(n, room)
    count = min(count, room)
    size = code_bytes(n, room)
    code = _bytes(data.draw(st.binary(min_size=size, max_size=size)))
    outcomes: list[object] = []
    for on in (reference, native):
        indices = torch.zeros(count, dtype=torch.int32)
        try:
            on.unpack_indices(code, n, room, indices)
            outcomes.append(indices.tolist())
        except CorruptPayload as error:
            outcomes.append(str(error))
    assert outcomes[0] == outcomes[1]
    if isinstance(outcomes[1], list):
        assert all(0 <= index < n for index in outcomes[1])


@ANY
@given(
    n=st.integers(0, 200),
    bin=st.sampled_from([2, 50, 63, 64, 500]),
    words=st.binary(max_size=300),
    more=st.integers(-1, 1),
)
def test_adacomp_words(native: ModuleType, n: int, bin: int, words: bytes, more: int) -> None:
    stored = _bytes(words)
    count = stored.numel() // (1 if bin < 64 else 2) + more
    outcomes = []
    for on in (reference, native):
        home = torch.zeros(n + 2 * GUARD)
        try:
            on.unadacomp_add(stored, count, 2.0, bin, home[GUARD : GUARD + n], 0.5)
            outcomes.append("added")
        except CorruptPayload as error:
            outcomes.append(str(error))
            assert not home.any(), "nothing is written before all is checked"
        assert not home[:GUARD].any()
        assert not home[GUARD + n :].any()
    assert outcomes[0] == outcomes[1]


@ANY
@given(
    n=st.integers(0, 300),
    bucket=st.sampled_from([8, 50, 128, 16384]),
    each=st.integers(16, 60),
    small=st.booleans(),
    data=st.data(),
)
def test_ternary_buckets(native: ModuleType, n: int, bucket: int, each: int, small: bool, data: st.DataObject) -> None:
    size = ternary_bytes(n, bucket, each)
    payload = _bytes(data.draw(st.binary(min_size=size, max_size=size)))
    if small:  # a count that may be true, so that gaps are read
        payload[1], payload[5] = 0, 63
        payload[0] %= min(bucket, 128)
    outcomes = []
    for on in (reference, native):
        home = torch.zeros(n + 2 * GUARD)
        try:
            on.unternary_add(payload, home[GUARD : GUARD + n], bucket, each, 0.5)
            outcomes.append(str(home.tolist()))
        except CorruptPayload as error:
            outcomes.append(str(error))
        assert not home[:GUARD].any()
        assert not home[GUARD + n :].any()
    assert outcomes[0] == outcomes[1]


@ANY
@given(n=st.integers(1, 100), wild=st.integers(-(2**31), 2**31 - 1))
def test_indices_to_scatter(native: ModuleType, n: int, wild: int) -> None:
    indices, values = torch.tensor([0, wild], dtype=torch.int32), torch.ones(2)
    for on in (reference, native):
        out = torch.zeros(n)
        if 0 <= wild < n:
            on.scatter_add(indices, values, out, 1.0)
            assert float(out.sum()) == 2.0
        else:
            with pytest.raises(CorruptPayload):
                on.scatter_add(indices, values, out, 1.0)
            assert not out.any()


@pytest.mark.parametrize("exponent", [-150, 128, 2**40, -(2**40)])
def test_exponents(native: ModuleType, exponent: int) -> None:
    for on in (reference, native):
        with pytest.raises(CorruptPayload):
            on.unnatural_add(torch.zeros(3, dtype=torch.uint8), exponent, torch.zeros(3), 1.0)
