"""Compressors as text: what a plan file, the command line and a log line show, read back without running anything."""

import ast
import difflib
import inspect
from collections.abc import Mapping

from laconic.compressors import FAMILIES
from laconic.errors import InvalidConfig
from laconic.exchange import Compressor

NAMES: Mapping[str, type[Compressor]] = {family.__name__: family for family in FAMILIES}


def parse(text: str, key: str = "compressor") -> Compressor:
    """The compressor that an expression describes; `str` of a compressor is its inverse.

    >>> parse("Chain(TopK(density=0.01), Quantize(bits=4))").values
    Quantize(bits=4, bucket=512, scaling='max', stochastic=False)
    """
    made = build(text, NAMES, key)
    if not isinstance(made, Compressor):
        raise InvalidConfig(key, text, f"start with one of {', '.join(NAMES)}")
    return made


def build(text: str, names: Mapping[str, type], key: str) -> object:
    """What an expression of these names describes: only they are ever called, with numbers, words and each other."""
    if not isinstance(text, str) or len(text) > 1000:
        raise InvalidConfig(key, text if not isinstance(text, str) else text[:40] + "...", "write one short expression")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise InvalidConfig(key, text, "write an expression such as TopK(density=0.01)") from None
    return _build(tree, names, text, key)


def _build(node: ast.expr, names: Mapping[str, type], text: str, key: str) -> object:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
        case ast.Name(id=name) if name in names:
            return _make(names[name], [], {}, text, key)
        case ast.List(elts=elements):
            return [_build(element, names, text, key) for element in elements]
        case ast.Name(id="bf16" | "fp16" as name):
            return name
        case ast.Attribute(value=ast.Name(id="torch"), attr="float16" | "bfloat16" as name):
            return name
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords) if name in names:
            named = {word.arg: _build(word.value, names, text, key) for word in keywords if word.arg}
            if len(named) != len(keywords):
                raise InvalidConfig(key, text, "name every parameter once")
            return _make(names[name], [_build(arg, names, text, key) for arg in args], named, text, key)
        case ast.Call(func=ast.Name(id=name)) | ast.Name(id=name):
            near = difflib.get_close_matches(name, names, 1)
            hint = f"did you mean {near[0]}?" if near else f"the names are {', '.join(names)}"
            raise InvalidConfig(key, text, f"{name} is not a compressor: {hint}")
        case _:
            raise InvalidConfig(key, text, "use only compressors, numbers and words, as in TopK(density=0.01)")


def _make(family: type, args: list[object], named: dict[str, object], text: str, key: str) -> object:
    known = list(inspect.signature(family).parameters)
    for name in named:
        if name not in known:
            offers = f"{family.__name__} takes {', '.join(known)}" if known else f"{family.__name__} takes none"
            raise InvalidConfig(key, text, f"{name} is not a parameter: {offers}")
    try:
        made: object = family(*args, **named)
        return made
    except InvalidConfig as error:
        raise InvalidConfig(f"{key}: {error.key}", error.value, error.remedy) from None
    except TypeError as error:
        raise InvalidConfig(key, text, str(error).removeprefix(f"{family.__name__}.__init__() ")) from None
