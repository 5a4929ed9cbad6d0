"""A race while it runs: one line a method, with its loss, pace, traffic and time left."""

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from laconic.lab.entrant import Entrant


class LiveView:
    """Draws the entrants after every turn; on a console that is no terminal, one line at every quarter of the way."""

    def __init__(self, console: Console, title: str) -> None:
        self._title = title
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._console = console
        self._quarter = 0

    def __enter__(self) -> Self:
        self._live.__enter__()
        self._show([])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def __call__(self, entrants: Sequence[Entrant]) -> None:
        self._show(entrants)

    def _show(self, entrants: Sequence[Entrant]) -> None:
        if self._console.is_terminal:
            self._live.update(draw(entrants, self._title), refresh=True)
            return
        running = [entrant for entrant in entrants if entrant.alive]
        quarter = min((4 * entrant.step // entrant.steps for entrant in running), default=0)
        if quarter > self._quarter:
            paces = ", ".join(f"{entrant.method.name} {entrant.ms_per_step or 0:.0f}" for entrant in running)
            self._console.print(f"{25 * quarter}% of the way; ms/step: {paces}", highlight=False, markup=False)
        self._quarter = max(quarter, self._quarter)


def draw(entrants: Sequence[Entrant], title: str) -> RenderableType:
    """The present state of a race."""
    view = Table(title=title, title_justify="left", header_style="bold")
    view.add_column("method", overflow="fold")
    view.add_column("progress", width=10)
    for name in ("step", "loss", "ms/step", "MB sent", "time left"):
        view.add_column(name, justify="right")
    for entrant in entrants:
        if not entrant.alive:
            view.add_row(Text(f"{entrant.method.name} {entrant.status}: {(entrant.failure or '')[:120]}", style="red"))
            continue
        view.add_row(
            entrant.method.name,
            ProgressBar(entrant.steps, entrant.step),
            f"{entrant.step}/{entrant.steps}",
            "-" if entrant.loss is None else f"{entrant.loss:.3f}",
            "-" if entrant.ms_per_step is None else f"{entrant.ms_per_step:.0f}",
            f"{entrant.sent / 1e6:.1f}",
            clock(entrant.seconds_left),
        )
    if not entrants:
        return Group(Text(title), Text("starting the hosts and their workers ..."))
    left = [entrant.seconds_left for entrant in entrants if entrant.alive]
    total = sum(value for value in left if value is not None)
    known = all(value is not None for value in left)
    return Group(view, Text(f"the race: {clock(total) if known else 'warming up'} left"))


def clock(seconds: float | None) -> str:
    """Minutes and seconds.

    >>> clock(75)
    '1:15'
    """
    if seconds is None:
        return "-"
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
