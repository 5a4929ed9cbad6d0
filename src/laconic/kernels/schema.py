"""One schema per kernel: what every backend must do, byte for byte.

Tensors are flat, contiguous and on one device. `x` is float32 and holds a gradient; an encoding kernel first adds
`residual` to it (where given), writes its code, and leaves in x what the code does not carry, so that
x_before + residual == decoded + x_after. It returns the energy |x + residual|^2, accumulated in double precision, which
is non-finite exactly if an element was; x is then treated as zero and the code is that of zeros.
Decoding kernels add `weight` times what was encoded to `out`, and check every bound of what came over the network.
Bit streams are little-endian: item i of width b occupies bits [i*b, (i+1)*b) of the byte string.
"""

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from laconic.kernels.energy import Energy


class Kernels(Protocol):
    """The arithmetic that compressors are made of."""

    name: str

    def fold(self, x: Tensor, residual: Tensor | None) -> Energy:
        """x += residual; the energy of the sum. Non-finite: x is zeroed."""

    def energy(self, x: Tensor) -> Energy:
        """The sum of squares of x."""

    def settle(self, x: Tensor, residual: Tensor) -> None:
        """residual = x, then x = 0: a step is good, and x makes room for the mean."""

    def quantize(
        self, x: Tensor, residual: Tensor | None, codes: Tensor, steps: Tensor,
        bits: int, bucket: int, l2: bool, seed: int | None,
    ) -> Energy:  # fmt: skip
        """Uniform codes of `bits` bits, a step per `bucket` elements.

        bits >= 2: q = round(x * (s / scale)) in [-s, s] with s = 2^(bits-1) - 1, code q + s, step scale / s;
        scale is the bucket's largest magnitude, or its L2 norm. With a seed q = floor(x * (s / scale) + u), u from
        `uniform(seed)`. bits == 1: code 1 is +step and 0 is -step; without a seed step is the mean magnitude and the
        code x >= 0, with one step is scale and the code u < (x / scale + 1) / 2. A scale too small to divide by is 0.
        """

    def dequantize_add(
        self, codes: Tensor, steps: Tensor, out: Tensor, bits: int, bucket: int, weight: float
    ) -> None: ...

    def requantize(
        self, codes: Tensor, steps: Tensor, x: Tensor, codes_out: Tensor, steps_out: Tensor,
        bits: int, bucket: int, l2: bool, seed: int | None,
    ) -> Energy:  # fmt: skip
        """The sum of several encodings, quantised again: x = what is left of it.

        Row i of the two-dimensional `codes` and `steps` is one encoding; both are views into one array of payloads.
        """

    def top_k(self, x: Tensor, residual: Tensor | None, indices: Tensor, values: Tensor) -> Energy:
        """The k = len(indices) largest magnitudes, ties by lower index; indices ascend. Sent elements of x become 0."""

    def sampled_top_k(
        self, x: Tensor, residual: Tensor | None, k: int, indices: Tensor, values: Tensor
    ) -> tuple[Energy, int]:
        """About k of the largest, by a threshold that a strided sample (kernels/sampling.py) suggests; (energy, count).

        The count is in [0.7 k, len(indices)]: where the sample misleads, the exact k are taken.
        """

    def threshold(
        self, x: Tensor, residual: Tensor | None, k: int, indices: Tensor, values: Tensor
    ) -> tuple[Energy, int]:
        """RedSync: bisect between mean and maximum magnitude until k <= count <= len(indices) pass; (energy, count)."""

    def strata(self, numel: int, seed: int, indices: Tensor) -> None:
        """One index, uniform in each of len(indices) equal stretches of [0, numel)."""

    def take(self, x: Tensor, indices: Tensor, values: Tensor) -> None:
        """values = x[indices]; x[indices] = 0. No index occurs twice."""

    def scatter_add(self, indices: Tensor, values: Tensor, out: Tensor, weight: float) -> None:
        """out[indices] += weight * values; an index outside out is a CorruptPayload."""

    def pack_indices(self, indices: Tensor, numel: int, room: int, code: Tensor) -> None:
        """Ascending indices as an Elias-Fano code of fixed size for up to `room` of them (see kernels/index.py)."""

    def unpack_indices(self, code: Tensor, numel: int, room: int, indices: Tensor) -> None:
        """The first len(indices) of them; fewer in the code, or one outside [0, numel), is a CorruptPayload."""

    def sign(self, x: Tensor, residual: Tensor | None, bits: Tensor, two_sided: bool) -> tuple[Energy, float, float]:
        """Bit i is x_i >= 0; (energy, value of a clear bit, value of a set bit).

        One-sided: -+ mean |x|. Two-sided: the mean of the negative elements and of the others.
        """

    def unsign_add(self, bits: Tensor, clear: float, set_: float, out: Tensor, weight: float) -> None: ...

    def majority(self, rows: Tensor, out: Tensor) -> None:
        """A bit is set where it is in at least half of the rows."""

    def natural(self, x: Tensor, residual: Tensor | None, codes: Tensor, seed: int) -> tuple[Energy, int]:
        """Powers of two, rounded stochastically without bias; (energy, exponent of the largest).

        Code: bit 7 is the sign, the lower seven a level v: 0 for zero, else the magnitude 2^(exponent - 127 + v).
        No power is beyond 2^127: larger magnitudes are rounded down.
        """

    def unnatural_add(self, codes: Tensor, exponent: int, out: Tensor, weight: float) -> None: ...

    def adacomp(self, x: Tensor, residual: Tensor | None, bin: int, words: Tensor) -> tuple[Energy, float, int]:
        """AdaComp: of G = x + residual the elements with |G + x| >= the largest |G| of their bin, as sign(G) * scale,
        where scale is the mean of those maxima; (energy, scale, words wanted). Where G is 0 there is nothing to send.

        A word (uint8 for bin < 64, else two bytes) holds index << 2 | last << 1 | negative, where `last` closes
        the bin. An empty bin is a word with the largest index and `last`. Words past the buffer's end are not
        written and their elements stay in x; unused words are zero.
        """

    def unadacomp_add(self, words: Tensor, count: int, scale: float, bin: int, out: Tensor, weight: float) -> None: ...

    def ternary(self, x: Tensor, residual: Tensor | None, payload: Tensor, bucket: int, each: int) -> Energy:
        """Of every bucket the elements of half a step or more, as sign times step; `each` bytes a bucket.

        The step is the bucket's largest magnitude, or up to 31/16 of it where more elements would be sent than there is
        room for; where they are too many all the same, the first of them go. Buckets share their room in pages. The
        format is that of kernels/reference/ternary.py.
        """

    def unternary_add(self, payload: Tensor, out: Tensor, bucket: int, each: int, weight: float) -> None:
        """A bucket that can not have been written is a CorruptPayload; those before it have been added."""

    def narrow(self, x: Tensor, residual: Tensor | None, code: Tensor, weight: float) -> Energy:
        """code = weight * x in 16 bits (largest finite magnitude at most)."""

    def widen_add(self, code: Tensor, out: Tensor, weight: float) -> None: ...

    def sketch(self, x: Tensor, residual: Tensor | None, q: Tensor, p: Tensor) -> Energy:
        """x += residual and p = x @ q, for a matrix x and factors of a few columns; the energy of the sum.

        p goes with the shorter side of x and q with the longer one, in all four products: where x is higher than wide,
        they are of its transpose.

        Unlike codes, products are equal to rounding only: each backend adds in its own order.
        """

    def sketch_back(self, x: Tensor, p: Tensor, q: Tensor) -> None:
        """q = x.T @ p."""

    def subtract_product(self, x: Tensor, p: Tensor, q: Tensor) -> None:
        """x -= p @ q.T."""

    def product(self, p: Tensor, q: Tensor, out: Tensor) -> None:
        """out = p @ q.T: on one machine the same bits on every rank, whatever the thread count."""

    def code_factor(self, factor: Tensor, payload: Tensor, bits: int) -> None:
        """A factor of a few columns in codes of 2 to 8 bits; factor becomes what these mean.

        A column has a scale, its largest magnitude (one too small to divide by is 0), and a row a share of all of
        them, 2^-31 to 1: the largest |x| / scale in it, rounded up to an eighth of a power of two. An element is code
        q + L with L = 2^(bits - 1) - 1, q in [-L, L], and means q * share * (scale / L), the nearest such value. The
        payload holds the steps scale / L, the rows' shares as bytes (the upper bits of a float), and the codes by rows,
        packed as those of `quantize`, each padded with zeros to a multiple of 8 bytes. A factor with anything that is
        not finite is zero.
        """

    def sum_factors(self, payloads: Tensor, total: Tensor, weight: float, bits: int) -> None:
        """total = weight times the sum of what the rows of `payloads` mean, added up in order."""

    def quantize_errors(self, x: Tensor, bucket: int, l2: bool) -> list[float]:
        """What 1, 2, ... 8 bits would leave of x: the energies of the leftovers of `quantize` without a seed."""

    def top_k_errors(self, x: Tensor, ks: Sequence[int]) -> list[float]:
        """What `top_k` would leave of x for each k, as an energy."""
