"""The shape of the house: who may name the network, what never travels, and that public names are explained."""

import ast
from pathlib import Path

import pytest

import laconic

HOUSE = Path(laconic.__file__).parent
FILES = sorted(HOUSE.rglob("*.py"))
MAY_NAME_THE_NETWORK = ("comm/process_group.py", "integrations/", "lab/")
FORBIDDEN = {
    "pickle", "cPickle", "dill", "cloudpickle", "broadcast_object_list", "all_gather_object", "gather_object",
    "scatter_object_list", "send_object_list", "recv_object_list",
}  # fmt: skip


def place(path: Path) -> str:
    return path.relative_to(HOUSE).as_posix()


def names(tree: ast.AST) -> set[str]:
    """Every module that is imported, and every dotted name that is used."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, (ast.Attribute, ast.Name)):
            found.add(ast.unparse(node))
    return found


def test_only_the_door_and_the_integrations_name_torch_distributed() -> None:
    naming = {
        place(path)
        for path in FILES
        if any(name.startswith("torch.distributed") for name in names(ast.parse(path.read_text())))
    }
    assert "comm/process_group.py" in naming, "the test sees what it looks for"
    assert [file for file in naming if not file.startswith(MAY_NAME_THE_NETWORK)] == []


@pytest.mark.parametrize("path", FILES, ids=place)
def test_nothing_is_pickled_on_the_wire_or_in_state(path: Path) -> None:
    tree = ast.parse(path.read_text())
    used = {part for name in names(tree) for part in name.split(".")}
    assert not used & FORBIDDEN
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.load":
            safe = [word for word in node.keywords if word.arg == "weights_only"]
            assert safe, "torch.load without weights_only"
            assert ast.unparse(safe[0].value) == "True"


@pytest.mark.parametrize("path", FILES, ids=place)
def test_every_file_says_what_it_is(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text())), "a module without a docstring"


@pytest.mark.parametrize("name", [name for name in laconic.__all__ if not name.startswith("__")])
def test_every_public_name_is_explained(name: str) -> None:
    thing = getattr(laconic, name)
    own = vars(thing).get("__doc__") if isinstance(thing, type) else thing.__doc__
    assert own
    assert not own.startswith(f"{name}("), "a dataclass's generated signature is no explanation"


def test_no_environment_variable_steers_it() -> None:
    """One default in one place; torchrun's own variables are read to learn the machine's size."""
    reading = {
        place(path)
        for path in FILES
        if {"os.environ", "os.getenv", "os.environ.get"} & names(ast.parse(path.read_text()))
    }
    assert {file for file in reading if not file.startswith(("lab/", "cli/"))} <= {"integrations/ddp.py"}
