"""How a threshold is looked for: constants that every backend must agree on."""

SAMPLE = 16_384, 65_536  # a sampled threshold looks at so many elements, at least and at most
EXPECTED = 64  # and should find so many of the wanted ones among them
LEAST = 0.7  # of the wanted count; below it the threshold is not believed
BISECTIONS = 32  # enough to halve a float32 interval down to neighbouring values


def sample(numel: int, k: int) -> tuple[int, int]:
    """(stride, share): look at every stride-th element, and take the share-th largest of them as the threshold.

    The stride is odd, lest it keep to a few columns of a matrix.

    >>> sample(1 << 24, 167772)
    (1025, 164)
    """
    few, many = SAMPLE
    wanted = min(many, max(few, EXPECTED * numel // max(1, k)))
    stride = max(1, numel // wanted) | 1
    seen = -(-numel // stride)
    return stride, min(seen, max(1, round(k * seen / numel)))
