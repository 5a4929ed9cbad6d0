"""Minus one, zero and one: the largest elements of every bucket as sign times a step, their places by Golomb and Rice.

A bucket is its count (uint16) and, unless that is zero, its step (float32) and the gaps between the elements that are
not zero, in two streams of whole bytes: `low` bits of every gap with the sign below them, and in unary what is left of
the gaps. Sixty-four buckets are a page, whose buckets follow each other without gaps in a room of its own. How many
elements go is decided by the level of the step: the first bucket keeps to its share; after it the level rises where
more than the shares so far is used, falls where a share is left, and a bucket may have an eighth of the room in
advance.
"""

import torch
from torch import Tensor

from laconic.errors import CorruptPayload
from laconic.kernels.energy import Energy
from laconic.kernels.payload import PAGE, aligned
from laconic.kernels.reference.bitstream import pack_bits, unpack_bits
from laconic.kernels.reference.fold import fold

LARGEST_TERNARY_BUCKET = 16384
LEAST = 16  # bytes that a bucket is sure of: a header and one element, whatever its place
LEVELS = 16  # a step is the bucket's largest element, its 17/16, ... its 31/16
LEAST_STEP = 2.0**-125  # so that half of it is not subnormal
LARGEST = torch.finfo(torch.float32).max


def misspelled(numel: int, bucket: int) -> CorruptPayload:
    """What to raise for a payload that no encoder writes."""
    return CorruptPayload(f"a count, step or gap can not have been sent for {numel} elements in buckets of {bucket}")


def _low_bits(count: int, length: int) -> int:
    """About the logarithm of 0.69 times the mean gap, which is the best."""
    return max(0, (11 * length // (16 * count)).bit_length() - 1)


def _sizes(count: int, length: int) -> tuple[int, int, int]:
    """The low bits of a gap, the bytes of their stream, and the most that the other may take."""
    low = _low_bits(count, length)
    return low, -(-count * (low + 1) // 8), -(-(count + (length - count >> low)) // 8)


def _bound(count: int, length: int) -> int:
    return 6 + sum(_sizes(count, length)[1:]) if count else 2


def _allowance(room: int, each: int, index: int, buckets: int, used: int) -> int:
    end = min(each * (index + 1) + (room // 8 if index else 0), room - LEAST * (buckets - 1 - index))
    return max(LEAST, end - used)


def _next_level(level: int, each: int, index: int, used: int) -> int:
    if used > each * index:
        return min(LEVELS - 1, level + 1)
    return max(0, level - 1) if used + each < each * index else level


def _chosen(x: Tensor, step: Tensor) -> Tensor:
    return (x.abs() >= step * 0.5).nonzero().flatten()


def _selected(x: Tensor, level: int, allowed: int) -> tuple[Tensor, Tensor, int]:
    """Which elements go, by which step, and its level: the given one, or the first above it that fits."""
    top = x.abs().amax()
    if not float(top) >= LEAST_STEP:
        return torch.empty(0, dtype=torch.int64, device=x.device), top, level
    for each in range(level, LEVELS):
        step = top * (1 + each / LEVELS)
        if not float(step) <= LARGEST:
            break
        chosen = _chosen(x, step)
        if _bound(chosen.numel(), x.numel()) <= allowed:
            return chosen, step, each
    chosen = _chosen(x, top)
    count = chosen.numel()
    while _bound(count, x.numel()) > allowed:
        count -= count // 8 if count >= 8 else 1
    return chosen[:count], top, LEVELS - 1


def _write(x: Tensor, chosen: Tensor, step: Tensor, out: Tensor) -> int:
    """Write a bucket, take what goes out of x; the bytes written."""
    count = chosen.numel()
    out[:2] = torch.tensor([count & 255, count >> 8], dtype=torch.uint8)
    if not count:
        return 2
    out[2:6] = step.reshape(1).view(torch.uint8)
    negative = x[chosen] < 0
    gaps = torch.diff(chosen, prepend=chosen.new_tensor([-1])) - 1
    low, first, _ = _sizes(count, x.numel())
    pack_bits((gaps & (1 << low) - 1) << 1 | negative.long(), low + 1, out[6 : 6 + first])
    ones = ((gaps >> low) + 1).cumsum(0) - 1
    second = int(ones[-1]) // 8 + 1
    unary = torch.zeros(8 * second, dtype=torch.uint8, device=x.device)
    unary[ones] = 1
    pack_bits(unary, 1, out[6 + first : 6 + first + second])
    x[chosen] -= torch.where(negative, -step, step)
    return 6 + first + second


def _pages(numel: int, bucket: int, each: int, payload: Tensor) -> list[tuple[int, int, Tensor]]:
    """For every page where it begins and ends, and its room."""
    rooms = []
    for begin in range(0, numel, PAGE * bucket):
        end = min(numel, begin + PAGE * bucket)
        room = each * -(-(end - begin) // bucket)
        rooms.append((begin, end, payload[:room]))
        payload = payload[aligned(room) :]
    return rooms


def ternary(x: Tensor, residual: Tensor | None, payload: Tensor, bucket: int, each: int) -> Energy:
    total = fold(x, residual)
    payload.zero_()
    for begin, end, room in _pages(x.numel(), bucket, each, payload):
        used = level = 0
        buckets = -(-(end - begin) // bucket)
        for index in range(buckets):
            part = x[begin + index * bucket : min(end, begin + (index + 1) * bucket)]
            begins = _next_level(level, each, index, used) if float(part.abs().amax()) >= LEAST_STEP else level
            chosen, step, level = _selected(part, begins, _allowance(room.numel(), each, index, buckets, used))
            used += _write(part, chosen, step, room[used:])
    return total


def _read(coded: Tensor, length: int) -> tuple[Tensor, Tensor, int] | None:
    """The indices and values of a bucket, and its bytes; None where it can not have been written."""
    if coded.numel() < 2:
        return None
    count = int(coded[0]) | int(coded[1]) << 8
    if not count:
        return torch.empty(0, dtype=torch.int64, device=coded.device), torch.empty(0, device=coded.device), 2
    if count > length or coded.numel() < 6:
        return None
    low, first, most = _sizes(count, length)
    step = coded[2:6].clone().view(torch.float32)
    if coded.numel() < 6 + first or not float(step.abs()) <= LARGEST:
        return None
    pieces = unpack_bits(coded[6 : 6 + first], low + 1, count).long()
    unary = coded[6 + first : 6 + first + most]
    ones = unpack_bits(unary, 1, 8 * unary.numel()).nonzero().flatten()[:count]
    if ones.numel() < count:
        return None
    high = torch.diff(ones, prepend=ones.new_tensor([-1])) - 1
    at = ((high << low) + (pieces >> 1) + 1).cumsum(0) - 1
    if int(at[-1]) >= length:
        return None
    return at, torch.where(pieces & 1 == 1, -step, step), 6 + first + int(ones[-1]) // 8 + 1


def unternary_add(payload: Tensor, out: Tensor, bucket: int, each: int, weight: float) -> None:
    for begin, end, room in _pages(out.numel(), bucket, each, payload):
        for at in range(begin, end, bucket):
            part = out[at : min(end, at + bucket)]
            read = _read(room, part.numel())
            if read is None:
                raise misspelled(out.numel(), bucket)
            indices, values, size = read
            part.index_add_(0, indices, values * weight)
            room = room[size:]
