"""Parameters are checked where a compressor is made, so that a wrong one never reaches a step."""

from laconic.errors import InvalidConfig


def share(key: str, value: float) -> None:
    """A fraction in (0, 1]."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 1:
        raise InvalidConfig(key, value, "choose a fraction in (0, 1], such as 0.01 for one element in a hundred")


def number(key: str, value: float, least: float, most: float) -> None:
    """A number in [least, most]."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
        raise InvalidConfig(key, value, f"choose a number from {least:g} to {most:g}")


def whole(key: str, value: int, least: int, most: int) -> None:
    """An integer in [least, most]."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidConfig(key, value, f"choose a whole number from {least} to {most}")


def one_of(key: str, value: object, choices: tuple[str, ...]) -> None:
    """One of a few words."""
    if value not in choices:
        raise InvalidConfig(key, value, f"choose one of {', '.join(map(repr, choices))}")


def flag(key: str, value: object) -> None:
    """True or False, and nothing that merely counts as one."""
    if not isinstance(value, bool):
        raise InvalidConfig(key, value, "choose True or False")
