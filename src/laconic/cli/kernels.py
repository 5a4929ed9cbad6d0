"""Measure every kernel beside memcpy and beside the plain reference."""

import argparse
import json
from dataclasses import asdict

import torch
from rich.console import Console
from rich.table import Table

from laconic.errors import InvalidConfig
from laconic.kernels.bench import Report, measure


def describe(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--numel", type=int, default=1 << 24, help="elements of the gradient (default %(default)s)")
    parser.add_argument("--threads", type=int, help="threads for one call (default: torch's)")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--plot", metavar="FILE", help="draw a bar chart (SVG)")


def run(arguments: argparse.Namespace) -> int:
    threads = torch.get_num_threads() if arguments.threads is None else arguments.threads
    for key, value in (("numel", arguments.numel), ("threads", threads)):
        if value < 1:
            raise InvalidConfig(key, value, "choose a whole number from 1 on")
    report = measure(arguments.numel, threads)
    if arguments.plot:
        with open(arguments.plot, "w", encoding="utf-8") as file:
            file.write(chart(report))
    print(json.dumps(asdict(report), indent=2)) if arguments.json else _show(report)
    return 0


def _show(report: Report) -> None:
    table = Table(
        title=f"{report.numel:,} elements, {report.threads} thread(s), memcpy {report.memcpy_gbps:.1f} GB/s",
        caption="GB/s of gradient, 4 bytes an element",
    )
    for column in ("kernel", "backend", "GB/s", "of memcpy", "over reference"):
        table.add_column(column, justify="left" if column in ("kernel", "backend") else "right")
    for each in report.kernels:
        table.add_row(
            each.name, each.backend, f"{each.gbps:.2f}", f"{each.of_memcpy:.2f}", f"{each.over_reference:.1f}x"
        )
    Console().print(table)


def chart(report: Report) -> str:
    """A bar for every kernel, as a share of memcpy; the line is memcpy itself."""
    row, left, wide = 20, 230, 420
    most = max(1.0, *(each.of_memcpy for each in report.kernels))
    height = row * len(report.kernels) + 50
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + wide + 70}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="8" y="18" font-weight="bold">{report.numel:,} elements, {report.threads} thread(s), '
        f"memcpy {report.memcpy_gbps:.1f} GB/s</text>",
    ]
    for index, each in enumerate(report.kernels):
        top, length = 30 + row * index, wide * each.of_memcpy / most
        parts.append(f'<text x="{left - 8}" y="{top + 13}" text-anchor="end">{each.name}</text>')
        parts.append(f'<rect x="{left}" y="{top + 2}" width="{length:.1f}" height="{row - 5}" fill="#4878a8"/>')
        parts.append(f'<text x="{left + length + 5:.1f}" y="{top + 13}">{each.of_memcpy:.2f}</text>')
    line = left + wide / most
    parts.append(f'<line x1="{line}" y1="26" x2="{line}" y2="{height - 18}" stroke="#c04040" stroke-dasharray="4 3"/>')
    return "\n".join([*parts, "</svg>"]) + "\n"
