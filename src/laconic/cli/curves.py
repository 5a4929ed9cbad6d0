"""Scaling curves as PNG and as one HTML page, drawn by matplotlib (pip install "laconic[plots]")."""

import io
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from laconic.errors import InvalidConfig, Unsupported
from laconic.planning.rates import spell
from laconic.planning.sweep import BreakEven, Point

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse}td,th{padding:.2rem .8rem;text-align:left;border-bottom:1px solid #8884}"
    "svg{max-width:100%;height:auto}"
)


def draw(title: str, points: Sequence[Point], evens: Sequence[BreakEven]) -> Any:
    """One figure: efficiency over ranks for each rate, and time over bandwidth on few ranks."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise Unsupported('drawing needs matplotlib: pip install "laconic[plots]", or use --json') from None
    rates = sorted({p.inter_bits for p in points})
    few = evens[0].ranks if evens else min(p.ranks for p in points)
    names = list(dict.fromkeys(point.way for point in points))
    figure = Figure(figsize=(5 * (len(rates) + 1), 4.6), layout="constrained")
    figure.suptitle(title)
    axes = figure.subplots(1, len(rates) + 1, squeeze=False)[0]
    for axis, rate in zip(axes, rates, strict=False):
        for name in names:
            line = [(float(p.ranks), p.efficiency) for p in points if p.way == name and p.inter_bits == rate]
            axis.plot(*zip(*sorted(line), strict=True), marker="o", markersize=3, label=name)
        axis.set(xscale="log", ylim=(0, 1.05), xlabel="ranks", ylabel="share of a step that is computing")
        axis.set_title(spell(rate))
        axis.grid(alpha=0.3)
    axis = axes[-1]
    for name in names:
        line = [(p.inter_bits / 1e9, p.seconds * 1e3) for p in points if p.way == name and p.ranks == few]
        drawn = axis.plot(*zip(*sorted(line), strict=True), marker="o", markersize=3, label=name)
        even = next((e.inter_bits for e in evens if e.way == name and e.ranks == few), None)
        if even is not None and even != float("inf"):
            axis.axvline(even / 1e9, color=drawn[0].get_color(), linestyle=":")
    axis.set(xscale="log", yscale="log", xlabel="Gbit/s between machines", ylabel="ms a step")
    axis.set_title(f"{few} ranks; dotted: break-even")
    axis.grid(alpha=0.3)
    figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)
    return figure


def save(figure: Any, path: Path) -> None:
    """As PNG."""
    try:
        figure.savefig(path, dpi=110)
    except OSError as error:
        raise InvalidConfig("png", str(path), f"choose a file that can be written: {error}") from None


def page(title: str, figure: Any, lines: Sequence[str], evens: Sequence[BreakEven]) -> str:
    """A page that needs nothing else: the figure as SVG, the words, and the break-even table."""
    drawing = io.StringIO()
    figure.savefig(drawing, format="svg")
    svg = drawing.getvalue()
    rows = "".join(
        f"<tr><td>{escape(even.way)}</td><td>{even.ranks}</td><td>{even_words(even)}</td></tr>" for even in evens
    )
    words = "".join(f"<p>{escape(line)}</p>" for line in lines)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style>'
        f"<h1>{escape(title)}</h1>{words}{svg[svg.index('<svg') :]}"
        "<h2>Break-even bandwidth</h2><table><tr><th>way</th><th>ranks</th><th>pays below</th></tr>"
        f"{rows}</table></html>"
    )


def even_words(even: BreakEven) -> str:
    if even.inter_bits is None:
        return "never pays"
    return "any bandwidth" if even.inter_bits == float("inf") else spell(even.inter_bits)
