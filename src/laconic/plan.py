"""A plan: which compressor each layer uses. Immutable, readable, comparable, and the same text on every rank."""

import fnmatch
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from laconic.compressors.dense import Dense
from laconic.compressors.expression import parse
from laconic.errors import InvalidConfig
from laconic.exchange import Compressor
from laconic.layer import Layer

VERSION = 1
LARGEST_FILE = 16 << 20


class Plan(Mapping[str, Compressor]):
    """Layer name (or a pattern such as "norm.*") to compressor; what no entry names stays dense.

    An exact name comes before a pattern, and of patterns the first that fits decides: the order is part of the plan.
    `why` may give a reason for an entry; it is shown, and is no part of the plan's identity. `waits` names layers: a
    bucket that ends with one of them travels with the next bucket, in one conversation. Both come along from a plan.

    >>> from laconic import TopK
    >>> plan = Plan({"head.weight": TopK(density=0.01), "norm.*": Dense()})
    >>> plan == Plan.from_json(plan.to_json())
    True
    >>> print(plan)
    head.weight  TopK(density=0.01)
    norm.*       Dense
    """

    def __init__(
        self,
        entries: Mapping[str, Compressor],
        why: Mapping[str, str] | None = None,
        waits: Iterable[str] | None = None,
    ) -> None:
        for name, compressor in entries.items():
            if not isinstance(compressor, Compressor):
                raise InvalidConfig(f"plan[{name!r}]", compressor, "give a compressor, such as laconic.Dense()")
        self._entries = dict(entries)
        self.why = dict(why or {})
        known: Iterable[str] = entries.waits if isinstance(entries, Plan) else ()
        self.waits: frozenset[str] = frozenset(known if waits is None else waits)

    def __getitem__(self, name: str) -> Compressor:
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Plan)
            and list(self._entries.items()) == list(other._entries.items())
            and self.waits == other.waits
        )

    def __hash__(self) -> int:
        return hash(self.digest)

    def resolve(self, layers: Sequence[Layer]) -> "Plan":
        """One entry for each layer, in the model's order; an entry that fits no layer is an error."""
        names = [layer.name for layer in layers]
        patterns = [key for key in self if key not in set(names)]
        unused = [key for key in patterns if not any(_fits(name, key) for name in names)]
        if unused:
            raise InvalidConfig(
                f"plan[{unused[0]!r}]", str(self[unused[0]]),
                f"the model has no such layer; its layers are {_some(names)}. Was the plan made for another model?",
            )  # fmt: skip
        if strangers := sorted(self.waits - set(names)):
            raise InvalidConfig("plan: waits", strangers[0], f"name layers of the model, such as {_some(names)}")
        resolved = {}
        for layer in layers:
            key = layer.name if layer.name in self else next((k for k in patterns if _fits(layer.name, k)), None)
            resolved[layer.name] = self[key].for_layer(layer) if key is not None else Dense()
        return Plan(resolved, {name: self.why[name] for name in names if name in self.why}, self.waits)

    def diff(self, other: "Plan") -> dict[str, tuple[Compressor | None, Compressor | None]]:
        """Where `other` differs: name to (here, there), in this plan's order, then the other's."""
        names = dict.fromkeys([*self, *other])
        return {n: (self.get(n), other.get(n)) for n in names if self.get(n) != other.get(n)}

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical text."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def to_json(self) -> str:
        """The canonical text: equal plans give equal bytes."""
        layers = {name: str(compressor) for name, compressor in self.items()}
        content: dict[str, object] = {"laconic_plan": VERSION, "layers": layers}
        if self.waits:
            content["waits"] = sorted(self.waits)
        return json.dumps(content, indent=1) + "\n"

    @staticmethod
    def from_json(text: str, source: str = "plan") -> "Plan":
        """Read what `to_json` wrote, strictly."""
        try:
            content = json.loads(text, object_pairs_hook=_once)
        except InvalidConfig as error:
            raise InvalidConfig(f"{source}: {error.key}", error.value, error.remedy) from None
        except (ValueError, RecursionError) as error:
            raise InvalidConfig(source, text[:40], f"write JSON: {error}") from None
        if not isinstance(content, dict) or "laconic_plan" not in content:
            raise InvalidConfig(source, text[:40], 'write {"laconic_plan": 1, "layers": {name: compressor}}')
        version = content["laconic_plan"]
        if type(version) is not int or version != VERSION:
            raise InvalidConfig(
                f"{source}: laconic_plan", version, f"this version of laconic reads plan version {VERSION}"
            )
        unknown = sorted(set(content) - {"laconic_plan", "layers", "waits"})
        if unknown:
            raise InvalidConfig(
                f"{source}: {unknown[0]}", content[unknown[0]], "the only keys are laconic_plan, layers and waits"
            )
        layers = content.get("layers")
        if not isinstance(layers, dict):
            raise InvalidConfig(f"{source}: layers", layers, "map layer names to compressors")
        waits = content.get("waits", [])
        if not isinstance(waits, list) or not all(isinstance(name, str) for name in waits):
            raise InvalidConfig(f"{source}: waits", waits, "list names of layers")
        entries = {name: parse(value, f"{source}: layers[{name!r}]") for name, value in layers.items()}
        return Plan(entries, waits=waits)

    def save(self, path: str | Path) -> None:
        """Write the plan as a file that `attach` takes."""
        Path(path).write_text(self.to_json(), encoding="utf-8")

    @staticmethod
    def load(path: str | Path) -> "Plan":
        """Read a plan file."""
        try:
            size = Path(path).stat().st_size
            if size > LARGEST_FILE:
                raise InvalidConfig(
                    "plan file", str(path), f"{size} bytes is no plan; the largest read is {LARGEST_FILE}"
                )
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidConfig("plan file", str(path), f"name a readable plan file: {error}") from None
        return Plan.from_json(text, str(path))

    def __str__(self) -> str:
        width = max((len(name) for name in self), default=0)
        lines = []
        for name, compressor in self.items():
            reason = f"   ({self.why[name]})" if name in self.why else ""
            onward = "   (its bucket waits for the next)" if name in self.waits else ""
            lines.append(f"{name:<{width}}  {compressor}{reason}{onward}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"Plan({len(self)} layers, {self.digest[:12]})"


def _fits(name: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(name, pattern)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """A JSON object whose keys come once each."""
    made: dict[str, object] = {}
    for key, value in pairs:
        if key in made:
            raise InvalidConfig(key, value, "this key is there twice; keep one")
        made[key] = value
    return made
