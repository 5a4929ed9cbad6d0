"""The report: run records as one HTML file that needs no network, no server and no large library.

The plots are drawn by some 300 lines of script of our own rather than by a plotting library: plotly's script alone is
4.8 MB, which a phone feels on every opening, and this page needs lines, bars and lanes and nothing else.
"""

import json
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from laconic.errors import InvalidConfig
from laconic.lab.records import Run
from laconic.lab.report.digest import digest


def render(runs: Sequence[Run]) -> str:
    """The page as text."""
    page = _part("page.html")
    # "</" would end the script element that holds the data; in JSON a slash may be escaped.
    data = json.dumps(digest(runs), allow_nan=False).replace("</", "<\\/").replace("<!--", "<\\u0021--")
    script = "\n".join(_part(name) for name in ("charts.js", "lanes.js", "page.js"))
    for mark, text in (("/*STYLE*/", _part("style.css")), ("/*SCRIPT*/", script), ("/*DATA*/", data)):
        page = page.replace(mark, text, 1)
    return page


def write_report(runs: Sequence[Run], path: Path) -> None:
    """Write the page to `path`."""
    try:
        path.write_text(render(runs), encoding="utf-8")
    except OSError as error:
        raise InvalidConfig("output", str(path), f"choose a file that can be written ({error.strerror})") from None


def _part(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
