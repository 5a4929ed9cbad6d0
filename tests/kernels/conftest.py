import importlib.util
from collections.abc import Iterator
from types import ModuleType

import pytest
import torch

# Where the package was installed without a compiler there is nothing here to compare with the reference.
COMPILED = importlib.util.find_spec("laconic.kernels._native") is not None
INSTRUCTION_SETS: list[str] = []
if COMPILED:
    from laconic.kernels import _native

    INSTRUCTION_SETS = _native.instruction_sets()


@pytest.fixture(params=INSTRUCTION_SETS or ["none"])
def native(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    """The compiled backend under each instruction set that this processor runs."""
    if not COMPILED:
        pytest.skip("installed without a compiler")
    from laconic.kernels import native as backend

    _native.choose(request.param)
    yield backend
    _native.choose(INSTRUCTION_SETS[0])


@pytest.fixture
def two_threads() -> Iterator[None]:
    """Torch's thread count, which is the kernels' too."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)
