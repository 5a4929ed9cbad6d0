"""Which layers leave together: the sizes at which DDP closes a bucket, and what laconic asks it for.

DDP lets go of a first megabyte and then of 25 at a time, so that a model of some megabytes leaves in two pieces, the
larger of them when backward has ended. Cut smaller, one is on the network while backward fills the next.
"""

from collections.abc import Collection, Sequence

from laconic.layer import Layer

FIRST, WHOLE = 1 << 20, 25 << 20  # DDP's own sizes, in bytes
FEWEST = 5  # pieces that a model's gradient is cut into
WAKING = 5e-3  # seconds that a piece must take on the link: its bucket's threads cost backward 1 to 2 ms in each step
SMALLEST = 2 << 20  # bytes; below, a round's latency and a thread's waking cost more than is gained


def cap(nbytes: int) -> int:
    """The size to close buckets at, for a gradient of so many bytes.

    >>> cap(1 << 20) >> 20, cap(15 << 20) >> 20, cap(1 << 30) >> 20
    (25, 3, 25)
    """
    cut = max(SMALLEST, nbytes // FEWEST)
    return cut if cut < min(nbytes, WHOLE) else WHOLE


def buckets(layers: Sequence[Layer], limit: int | None = None) -> list[list[int]]:
    """How layers are grouped, in the order of ready: a bucket closes when it has reached its size, the first early.

    `limit` is that size; by default the one that is asked for where anything may be compressed.
    """
    limit = limit or cap(sum(layer.nbytes for layer in layers))
    groups: list[list[int]] = [[]]
    size, full = 0, FIRST
    for index, layer in enumerate(layers):
        groups[-1].append(index)
        size += layer.nbytes
        if size >= full and index + 1 < len(layers):
            groups.append([])
            size, full = 0, limit
    return groups


def together(groups: Sequence[Sequence[int]], layers: Sequence[Layer], waits: Collection[str]) -> list[list[int]]:
    """The groups that leave where those that end with a layer in `waits` travel with the next one.

    >>> together([[0], [1, 2], [3]], [Layer(name, (1,)) for name in "abcd"], {"a"})
    [[0, 1, 2], [3]]
    """
    made: list[list[int]] = []
    joins = False
    for group in groups:
        made[-1:] = [[*made[-1], *group]] if joins else [*made[-1:], list(group)]
        joins = layers[group[-1]].name in waits
    return made
