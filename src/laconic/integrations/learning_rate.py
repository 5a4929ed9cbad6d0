"""The learning rate, which policies may know: of an optimizer that is given, or found when it first steps."""

import weakref
from collections.abc import Callable, Iterable
from typing import Any

from torch import Tensor
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook

from laconic.errors import InvalidConfig


class LearningRate:
    """Calling it tells the present rate of the first parameter group; None while no optimizer is known.

    Without one that is given, torch tells of each optimizer's next step until one moves a parameter of ours.
    """

    def __init__(self, optimizer: object | None, parameters: Iterable[Tensor]) -> None:
        self._ours = frozenset(map(id, parameters))
        self._optimizer: Callable[[], object | None] = lambda: optimizer
        self._found: weakref.finalize[..., LearningRate] | None = None
        if optimizer is None:
            self._search()
        elif not getattr(optimizer, "param_groups", None):
            raise InvalidConfig("optimizer", type(optimizer).__name__, "give one with param_groups, as torch.optim's")

    def _search(self) -> None:
        own = weakref.ref(self)

        def seen(optimizer: Optimizer, *_: Any) -> None:
            searcher = own()
            if searcher is not None and any(
                id(one) in searcher._ours for group in optimizer.param_groups for one in group["params"]
            ):
                searcher._optimizer = weakref.ref(optimizer)  # torch walks over its hooks now: it is removed later

        self._found = weakref.finalize(self, register_optimizer_step_pre_hook(seen).remove)

    def __call__(self) -> float | None:
        optimizer = self._optimizer()
        if optimizer is None:
            if self._found is not None and not self._found.alive:  # the optimizer is gone, and another may come
                self._search()
            return None
        if self._found is not None:
            self._found()
        try:
            return float(optimizer.param_groups[0]["lr"])  # type: ignore[attr-defined]
        except (LookupError, TypeError, ValueError):
            return None
