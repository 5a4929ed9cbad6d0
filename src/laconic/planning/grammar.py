"""Espresso's decision tree as a grammar: every expression that may be written for a layer, from given compressors.

    option  = flat | Hierarchical(inner, flat) | OnCpu(option with arithmetic)
    flat    = Dense | compressor | Divided(one-shot compressor)
    inner   = Dense | one-shot compressor

The compressors are those that are given, at the degree that is given, and Cast. A hierarchy needs several machines of
several ranks; the host is another place only where there is a device beside it.
"""

from collections.abc import Sequence

from laconic.compressors.cast import Cast
from laconic.compressors.codec import Codec
from laconic.compressors.dense import Dense
from laconic.compressors.routes import Divided, Hierarchical, OnCpu, Route
from laconic.errors import InvalidConfig
from laconic.exchange import Compressor
from laconic.layer import Layer
from laconic.world import World


def expressions(given: Sequence[Compressor], world: World, offload: bool = True) -> list[Compressor]:
    """All expressions over these compressors, dense first, each once.

    >>> from laconic.compressors.topk import TopK
    >>> [str(x) for x in expressions([TopK(density=0.01)], World(size=4), offload=False)]
    ['Dense', "Cast(dtype='bf16')", "Divided(Cast(dtype='bf16'))", 'TopK(density=0.01)', 'Divided(TopK(density=0.01))']
    >>> len(expressions([TopK(density=0.01)], World(size=64, node_size=8)))
    38
    """
    for compressor in given:
        if not isinstance(compressor, Compressor) or isinstance(compressor, Route):
            raise InvalidConfig("compressor", str(compressor), "give compressors without routes: routes are searched")
    cores = list(dict.fromkeys([Cast(), *given]))
    flat: list[Compressor] = [Dense()]
    for core in cores:
        if isinstance(core, Dense):
            continue
        flat.append(core)
        if isinstance(core, Codec):
            flat.append(Divided(core))
    made = list(flat)
    if world.tiered:
        inner = [Dense(), *(core for core in cores if isinstance(core, Codec))]
        made += [Hierarchical(first, outer) for first in inner for outer in flat]
    if offload:
        made += [OnCpu(option) for option in made if not plain(option)]
    return made


def options(layer: Layer, every: Sequence[Compressor]) -> list[Compressor]:
    """Those that make sense for a layer: dense always, others unless one of their compressors declines it."""
    return [option for option in every if plain(option) or all(core.unsuited(layer) is None for core in _cores(option))]


def plain(option: Compressor) -> bool:
    """No arithmetic at all."""
    if isinstance(option, Hierarchical):
        return isinstance(option.inner, Dense) and isinstance(option.outer, Dense)
    return isinstance(option, Dense)


def _cores(option: Compressor) -> list[Compressor]:
    match option:
        case OnCpu(compressor=inner) | Divided(codec=inner):
            return _cores(inner)
        case Hierarchical(inner=inner, outer=outer):
            return _cores(inner) + _cores(outer)
        case Dense():
            return []
        case _:
            return [option]
