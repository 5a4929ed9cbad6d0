"""The size of an Elias-Fano index code, which every backend and every price must agree on.

k ascending indices below n: each index gives its low l = floor(log2(n / k)) bits to one stream and its high part, in
unary, to a bitmap in which index i sets bit (index_i >> l) + i. Together l + 1 + n / (k 2^l) bits an index, within 0.6
bits of the entropy, at a size that n and k alone decide: at 1% 8.6 bits an index, where deltas in bytes need 11.
"""

from math import ceil


def low_bits(numel: int, room: int) -> int:
    """l: how many low bits of an index are stored as they are."""
    return max(0, (numel // max(1, room)).bit_length() - 1)


def bitmap_bytes(numel: int, room: int) -> int:
    """The size of the bitmap, which comes first."""
    return ceil((room + (numel >> low_bits(numel, room)) + 1) / 8)


def code_bytes(numel: int, room: int) -> int:
    """The size of the whole code: bitmap, then low bits."""
    return bitmap_bytes(numel, room) + ceil(room * low_bits(numel, room) / 8)
