"""What a policy is given is checked when it is made, and which steps it watches is decided in one place."""

from inspect import Parameter, signature
from math import isfinite

from laconic.errors import InvalidConfig
from laconic.exchange import Compressor

WATCHED = 10  # steps before a decision whose statistics are averaged (L-GreCo's)


def steps(key: str, value: int, least: int) -> None:
    """A number of steps."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InvalidConfig(key, value, f"give a whole number of steps, {least} or more")


def number(key: str, value: float, least: float, most: float) -> None:
    """A finite number in (least, most]."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not isfinite(value):
        raise InvalidConfig(key, value, "give a finite number")
    if not least < value <= most:
        raise InvalidConfig(key, value, f"give a number above {least:g}" + (f", {most:g} at most" * isfinite(most)))


def compressor(key: str, value: object) -> None:
    """A compressor that may leave something unsent."""
    if not isinstance(value, Compressor) or value.lossless:
        raise InvalidConfig(key, value, "give a compressor that has a degree, such as laconic.TopK(density=0.01)")


def described(policy: object) -> str:
    """The expression that makes a policy: what was given, where it is not the default."""
    shown = []
    for name, parameter in signature(type(policy)).parameters.items():
        value = getattr(policy, name)
        if parameter.default is not Parameter.empty and value == parameter.default:
            continue
        text = f"[{', '.join(map(str, value))}]" if isinstance(value, (list, tuple)) else str(value)
        text = repr(value) if isinstance(value, str) else text
        shown.append(f"{name}={text}" if parameter.kind is Parameter.KEYWORD_ONLY else text)
    return f"{type(policy).__name__}({', '.join(shown)})"


def watched(ahead: int, period: int) -> bool:
    """Whether the step that is followed by a decision `ahead` steps later is one of the last whose sums arrive in time.

    What is measured in a step rides in the next: two steps are the least, unless every step is followed by a decision.
    """
    return min(2, period) <= ahead <= WATCHED + 1
