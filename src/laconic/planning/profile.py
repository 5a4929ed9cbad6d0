"""A profile: what a cluster and a model cost, measured by a probe or described for a what-if. Versioned JSON."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any

import torch

from laconic.errors import InvalidConfig
from laconic.exchange import Op
from laconic.layer import Layer
from laconic.planning.costs import DEVICES, Arithmetic, Kernel, Kernels
from laconic.planning.link import Curves, Line, check_line
from laconic.world import Scope, World

VERSION = 2
_DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16, "float64": torch.float64}
_KEYS = (
    "laconic_profile", "model", "device", "world_size", "node_size", "cores", "handling", "forward", "after",
    "layers", "links", "kernels", "talks",
)  # fmt: skip
Talks = Mapping[str, tuple[Line, ...]]  # expression: seconds of each part of its conversation, over elements


@dataclass(frozen=True)
class Trace:
    """The backward pass: when each layer's gradient is ready, in seconds from its start, mean and spread.

    Layers stand in the order in which they are ready.
    """

    layers: tuple[Layer, ...]
    ready: tuple[float, ...]
    spread: tuple[float, ...] = ()
    forward: float = 0.0  # seconds of the step before the backward pass
    after: float = 0.0  # seconds of the step once the last gradient is there: copies, optimizer

    def __post_init__(self) -> None:
        if not self.layers:
            raise InvalidConfig("layers", [], "a profile needs at least one layer: was the model empty, or frozen?")
        if len(self.ready) != len(self.layers):
            raise InvalidConfig("ready", len(self.ready), f"give one time for each of {len(self.layers)} layers")
        if not self.spread:
            object.__setattr__(self, "spread", (0.0,) * len(self.layers))
        names = [layer.name for layer in self.layers]
        if len(set(names)) < len(names):
            double = next(name for name in names if names.count(name) > 1)
            raise InvalidConfig("layers", double, "every layer has a name of its own")
        for layer, ready, spread in zip(self.layers, self.ready, self.spread, strict=True):
            _seconds(ready, f"layers[{layer.name!r}].ready")
            _seconds(spread, f"layers[{layer.name!r}].spread")
            if not layer.numel:
                raise InvalidConfig(f"layers[{layer.name!r}].shape", layer.shape, "leave out layers without elements")
        _seconds(self.forward, "forward")
        _seconds(self.after, "after")
        late = next((i for i in range(1, len(names)) if self.ready[i] < self.ready[i - 1]), None)
        if late is not None:
            raise InvalidConfig(f"layers[{names[late]!r}].ready", self.ready[late], "list layers in the order of ready")


@dataclass(frozen=True)
class Profile:
    """Links, kernel costs and the backward trace, for one model on one cluster.

    `talks` are conversations that were measured as a whole, in this world and on this model's layers; where there are
    none, kernels add up to an estimate. `cores` are those that one rank has for backward pass and arithmetic together.

    >>> trace = Trace((Layer("w", (8, 8)),), (0.001,))
    >>> profile = Profile("tiny", World(size=2), trace, {(Op.SUM, Scope.WORLD): (Line(1e-4, 1e-8),)})
    >>> Profile.from_json(profile.to_json()) == profile
    True
    """

    model: str
    world: World
    trace: Trace
    links: Curves
    device: str = "cpu"
    kernels: Kernels = field(default_factory=dict)
    talks: Talks = field(default_factory=dict)
    cores: float = 1.0
    handling: float = 0.0  # a core's seconds for a byte that a rank sends between machines

    def __post_init__(self) -> None:
        if not isfinite(self.cores) or self.cores <= 0:
            raise InvalidConfig("cores", self.cores, "give the cores of one rank, a number above 0")
        _seconds(self.handling, "handling")
        for name, parts in self.talks.items():
            for line in parts:
                check_line(line, f"talks[{name}]")
        if self.device not in DEVICES:
            raise InvalidConfig("device", self.device, f"choose one of {', '.join(DEVICES)}")
        for (op, scope), lines in self.links.items():
            for line in lines:
                check_line(line, f"links[{op.value} {scope.value}]")
        for (name, device), kernel in self.kernels.items():
            check_line(kernel.encode, f"kernels[{name} on {device}].encode")
            check_line(kernel.decode, f"kernels[{name} on {device}].decode")

    @property
    def arithmetic(self) -> Arithmetic:
        return Arithmetic(self.device, self.kernels)

    def require(self, layers: Sequence[Layer] | None = None, world: World | None = None) -> None:
        """Raise unless this is a profile of that model and cluster."""
        if world is not None and (world.size, world.node_size) != (self.world.size, self.world.node_size):
            here = f"{self.world.size // self.world.node_size} machines of {self.world.node_size}"
            asked = f"{world.size // world.node_size} machines of {world.node_size}"
            raise InvalidConfig("profile", asked, f"it was measured on {here}: probe there, or leave out the size")
        if layers is not None:
            mine = {layer.name: layer.shape for layer in self.trace.layers}
            theirs = {layer.name: layer.shape for layer in layers}
            differing = next((n for n in (*theirs, *mine) if mine.get(n) != theirs.get(n)), None)
            if differing is not None:
                raise InvalidConfig(
                    "profile", self.model,
                    f"it is of another model: {differing!r} is {mine.get(differing, 'absent')} there and"
                    f" {theirs.get(differing, 'absent')} here; probe this model",
                )  # fmt: skip

    def to_json(self) -> str:
        """One layer, link and kernel a line, so that two profiles can be compared with diff."""
        trace = self.trace
        layers = [
            {"name": x.name, "shape": list(x.shape), "dtype": str(x.dtype)[6:], "ready": ready, "spread": spread}
            for x, ready, spread in zip(trace.layers, trace.ready, trace.spread, strict=True)
        ]
        links = [
            {"op": op.value, "scope": scope.value, **_line(line), "points": [list(point) for point in line.points]}
            for (op, scope), lines in self.links.items()
            for line in lines
        ]
        kernels = [
            {"compressor": name, "device": device, "encode": _line(k.encode), "decode": _line(k.decode)}
            for (name, device), k in self.kernels.items()
        ]
        talks = [{"compressor": name, "parts": [_line(line) for line in parts]} for name, parts in self.talks.items()]
        head = {
            "laconic_profile": VERSION, "model": self.model, "device": self.device, "world_size": self.world.size,
            "node_size": self.world.node_size, "cores": self.cores, "handling": self.handling,
            "forward": trace.forward, "after": trace.after,
        }  # fmt: skip
        parts = [f' "{key}": {json.dumps(value)}' for key, value in head.items()]
        tables: dict[str, Sequence[Mapping[str, object]]]
        tables = {"layers": layers, "links": links, "kernels": kernels, "talks": talks}
        parts += [f' "{key}": {_rows(rows)}' for key, rows in tables.items()]
        return "{\n" + ",\n".join(parts) + "\n}\n"

    @staticmethod
    def from_json(text: str, source: str = "profile") -> "Profile":
        """Read what `to_json` wrote, strictly."""
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidConfig(source, text[:40], f"write JSON: {error}") from None
        if not isinstance(content, dict) or content.get("laconic_profile") != VERSION:
            found = content.get("laconic_profile") if isinstance(content, dict) else text[:40]
            raise InvalidConfig(f"{source}: laconic_profile", found, f"this version reads profile version {VERSION}")
        _only(content, _KEYS, source)
        size, node = _whole(content, "world_size", source), _whole(content, "node_size", source)
        if size % node:
            raise InvalidConfig(f"{source}: node_size", node, f"it must divide world_size, {size}")
        rows = [_row(row, f"{source}: layers[{i}]", ("name", "shape", "dtype", "ready", "spread"))
                for i, row in enumerate(_list(content, "layers", source))]  # fmt: skip
        trace = Trace(
            tuple(_layer(row, f"{source}: layers[{i}]") for i, row in enumerate(rows)),
            tuple(_seconds(row["ready"], f"{source}: layers[{row['name']!r}].ready") for row in rows),
            tuple(_seconds(row["spread"], f"{source}: layers[{row['name']!r}].spread") for row in rows),
            _seconds(content["forward"], f"{source}: forward"),
            _seconds(content["after"], f"{source}: after"),
        )
        links: dict[tuple[Op, Scope], tuple[Line, ...]] = {}
        for i, row in enumerate(_list(content, "links", source)):
            where = f"{source}: links[{i}]"
            _row(row, where, ("op", "scope", "alpha", "beta", "error", "points"))
            try:
                key = Op(row["op"]), Scope(row["scope"])
            except ValueError:
                known = f"{', '.join(op.value for op in Op)}; {', '.join(s.value for s in Scope)}"
                raise InvalidConfig(where, f"{row['op']} {row['scope']}", f"ops and scopes are {known}") from None
            line = replace(_as_line(row, where), points=_points(row, where))
            links[key] = (*links.get(key, ()), check_line(line, where))
        kernels = {}
        for i, row in enumerate(_list(content, "kernels", source)):
            where = f"{source}: kernels[{i}]"
            _row(row, where, ("compressor", "device", "encode", "decode"))
            for part in ("encode", "decode"):
                _row(row[part], f"{where}.{part}", ("alpha", "beta", "error"))
            kernels[str(row["compressor"]), str(row["device"])] = Kernel(
                _as_line(row["encode"], f"{where}.encode"), _as_line(row["decode"], f"{where}.decode")
            )
        talks = {}
        for i, row in enumerate(_list(content, "talks", source)):
            where = f"{source}: talks[{i}]"
            parts = _list(_row(row, where, ("compressor", "parts")), "parts", where)
            keys = ("alpha", "beta", "error")
            talks[str(row["compressor"])] = tuple(_as_line(_row(part, where, keys), where) for part in parts)
        cores = _seconds(content["cores"], f"{source}: cores")
        return Profile(
            str(content["model"]),
            World(0, size, node),
            trace,
            links,
            str(content["device"]),
            kernels,
            talks,
            cores,
            _seconds(content["handling"], f"{source}: handling"),
        )


def _seconds(value: object, key: str) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not isfinite(value) or value < 0:
        raise InvalidConfig(key, value, "give seconds, a number that is not negative")
    return float(value)


def _line(line: Line) -> dict[str, float]:
    return {"alpha": line.alpha, "beta": line.beta, "error": line.error}


def _as_line(row: Mapping[str, Any], where: str) -> Line:
    return check_line(Line(row["alpha"], row["beta"], row["error"]), where)


def _points(row: Mapping[str, Any], where: str) -> tuple[tuple[float, float], ...]:
    points = _list(row, "points", where)
    if not all(isinstance(p, list) and len(p) == 2 and all(type(v) in (int, float) for v in p) for p in points):
        raise InvalidConfig(f"{where}.points", points, "write pairs of bytes and seconds")
    return tuple((float(nbytes), float(seconds)) for nbytes, seconds in points)


def _rows(rows: Sequence[Mapping[str, object]]) -> str:
    return "[\n" + ",\n".join("  " + json.dumps(row) for row in rows) + "\n ]" if rows else "[]"


def _only(row: Mapping[str, Any], keys: Iterable[str], where: str) -> None:
    missing, unknown = [key for key in keys if key not in row], [key for key in row if key not in keys]
    if missing or unknown:
        what = "is missing" if missing else "is not known"
        raise InvalidConfig(f"{where}: {(missing or unknown)[0]}", None, f"this key {what}; keys are {', '.join(keys)}")


def _row(row: object, where: str, keys: Sequence[str]) -> Mapping[str, Any]:
    if not isinstance(row, dict):
        raise InvalidConfig(where, row, f"write an object with the keys {', '.join(keys)}")
    _only(row, keys, where)
    return row


def _list(content: Mapping[str, Any], key: str, source: str) -> list[Any]:
    if not isinstance(content[key], list):
        raise InvalidConfig(f"{source}: {key}", content[key], "write a list")
    return list(content[key])


def _whole(content: Mapping[str, Any], key: str, source: str) -> int:
    value = content[key]
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidConfig(f"{source}: {key}", value, "give a whole number from 1")
    return value


def _layer(row: Mapping[str, Any], where: str) -> Layer:
    shape = row["shape"]
    if not isinstance(shape, list) or not all(type(d) is int and d >= 0 for d in shape):
        raise InvalidConfig(f"{where}.shape", shape, "write a list of whole numbers")
    if row["dtype"] not in _DTYPES:
        raise InvalidConfig(f"{where}.dtype", row["dtype"], f"choose one of {', '.join(_DTYPES)}")
    return Layer(str(row["name"]), tuple(shape), _DTYPES[row["dtype"]])
