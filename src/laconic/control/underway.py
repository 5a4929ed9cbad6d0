"""What is under way between two steps, as text: statistics of a watched window, and what has been said of a plan.

It is this rank's own, so that a run that is saved in the middle of a window goes on as if it had not been.
"""

from collections.abc import Mapping
from typing import Any

from laconic.compressors.expression import parse
from laconic.runtime.observer import Observer
from laconic.runtime.watch import Measurement
from laconic.stats import Table


def packed(observer: Observer) -> dict[str, Any]:
    """What the observer has gathered and not used yet, as plain values; `unpack` is its inverse."""
    tables, (own, measured) = observer.tables, observer.untold
    return {
        "news": {name: _table(one) for name, one in tables.news.items()},
        "sums": {name: _table(one) for name, one in tables.sums.items()},
        "own": {name: list(pair) for name, pair in own.items()},
        "measured": {name: [list(map(str, one.rungs)), list(one.values)] for name, one in measured.items()},
    }


def unpack(content: Mapping[str, Any], observer: Observer) -> None:
    """Go on from there."""
    observer.tables.news = {name: _read(*one) for name, one in content["news"].items()}
    observer.tables.sums = {name: _read(*one) for name, one in content["sums"].items()}
    own = {name: (pair[0], pair[1]) for name, pair in content["own"].items()}
    measured = {
        name: Measurement(tuple(map(parse, rungs)), tuple(values))
        for name, (rungs, values) in content["measured"].items()
    }
    observer.untold = own, measured


def _table(table: Table) -> list[Any]:
    return [list(map(str, table.rungs)), list(table.errors), table.energy, table.gradient, table.steps]


def _read(rungs: list[str], errors: list[float], energy: float, gradient: float, steps: int) -> Table:
    return Table(tuple(map(parse, rungs)), tuple(errors), energy, gradient, steps)
