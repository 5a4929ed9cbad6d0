"""What can go wrong, by name. A message names the offending key, its value, and the remedy."""


class LaconicError(Exception):
    """Every error that laconic raises on purpose."""


class InvalidConfig(LaconicError, ValueError):
    """A parameter, plan or option that cannot be used.

    >>> raise InvalidConfig("density", 1.5, "choose a value in (0, 1]")
    Traceback (most recent call last):
    ...
    laconic.errors.InvalidConfig: density=1.5 cannot be used: choose a value in (0, 1]
    """

    def __init__(self, key: str, value: object, remedy: str) -> None:
        super().__init__(f"{key}={value!r} cannot be used: {remedy}")
        self.key, self.value, self.remedy = key, value, remedy


class Unsupported(LaconicError, RuntimeError):
    """A model or set-up that laconic does not work with; the message says what to do instead."""


class Disagreement(LaconicError, RuntimeError):
    """The ranks hold different plans, parameters or versions; raised alike on every rank."""


class CorruptPayload(LaconicError, ValueError):
    """A received payload whose counts or indices lie outside their bounds."""


class ExchangeFailed(LaconicError, RuntimeError):
    """A step could not be completed: a peer died, timed out, or a compressor raised."""


class StateError(LaconicError, RuntimeError):
    """A checkpoint that cannot be loaded as it is."""
