"""Link speeds as people write them: a number with a unit, or the name of a typical link."""

import re

from laconic.errors import InvalidConfig

_UNITS = {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9, "tbit": 10**12}
_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?bit)(?:/s|ps)?")

# What one rank sends in one direction, in bit/s as the data sheets give it. `link.REACHED` of it is what software sees.
NAMED = {
    "nvlink": 1.2e12,  # V100: 6 links of 25 GB/s
    "nvlink3": 2.4e12,  # A100
    "nvlink4": 3.6e12,  # H100
    "pcie3x16": 126e9,
    "pcie4x16": 252e9,
    "pcie5x16": 504e9,
    "ib-hdr": 200e9,
    "ib-ndr": 400e9,
    "loopback": 40e9,
}


def bits_per_second(text: str) -> float | None:
    """What a rate with a unit says, or None if it is not one.

    >>> bits_per_second("2.5gbit"), bits_per_second("50 Mbit/s"), bits_per_second("fast")
    (2500000000.0, 50000000.0, None)
    """
    found = _RATE.fullmatch(text.strip().lower())
    return float(found[1]) * _UNITS[found[2]] if found else None


def parse_rate(text: str, key: str = "rate") -> float:
    """Bits per second of a rate or a named link.

    >>> parse_rate("25gbit") / 1e9, parse_rate("nvlink") / 1e9
    (25.0, 1200.0)
    """
    bits = NAMED.get(text.strip().lower(), bits_per_second(text))
    if bits is None or not 1e3 <= bits <= 1e15:
        raise InvalidConfig(key, text, f"write a rate as in 200mbit or 25gbit, or one of {', '.join(NAMED)}")
    return bits


def spell(bits: float) -> str:
    """A rate as `parse_rate` reads it.

    >>> spell(25e9), spell(12345678)
    ('25gbit', '12.35mbit')
    """
    unit = next((unit for unit, size in reversed(_UNITS.items()) if bits >= size), "bit")
    return f"{bits / _UNITS[unit]:.4g}{unit}"
