"""Bad input: an error that names the key, the value and the remedy; on the command line exit code 2, no traceback."""

import json
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
import torch

from laconic import (
    AdaComp,
    Cast,
    Chain,
    Dense,
    Divided,
    Hierarchical,
    InvalidConfig,
    OnCpu,
    Plan,
    PowerSGD,
    Quantize,
    RandomK,
    Sign,
    State,
    Ternary,
    Threshold,
    TopK,
)
from laconic.cli import main
from laconic.compressors.expression import parse
from laconic.integrations.options import Options, as_policy
from laconic.layer import Layer

NAN = float("nan")
LAYERS = [Layer("fc.weight", (20, 10)), Layer("fc.bias", (20,))]

PARAMETERS = [
    *[
        (family, {"density": value})
        for family in (TopK, RandomK, Threshold)
        for value in (0, 0.0, -0.1, 1.5, NAN, float("inf"), True, "0.1", None, 10**400)
    ],
    *[(Quantize, {"bits": value}) for value in (0, 9, 33, -1, 4.0, True, "4", None)],
    *[(Quantize, {"bucket": value}) for value in (0, 7, 2**21, 512.0, True)],
    *[(Quantize, {"stochastic": value}) for value in (1, "no", None)],
    (Quantize, {"scaling": "l1"}),
    *[(Ternary, {"bits": value}) for value in (0, 0.0, 0.05, -1, 2.1, NAN, float("inf"), True, "1", None)],
    *[(Ternary, {"bucket": value}) for value in (0, 63, 16385, 512.0, True)],
    *[(PowerSGD, {"rank": value}) for value in (0, -1, 1.0, True, 2**17)],
    *[(AdaComp, {"bin": value}) for value in (0, 1, 16384, 50.0, True)],
    *[(Cast, {"dtype": value}) for value in ("fp8", torch.float32, None, 16, ["bf16"])],
    (Sign, {"scale": "max"}),
    (Sign, {"scale": ["mean"]}),
    (TopK, {"selection": "approximate"}),
    (Divided, {"codec": PowerSGD()}),
    (Divided, {"codec": Dense()}),
    (Divided, {"codec": "TopK"}),
    (OnCpu, {"compressor": 3}),
    (Chain, {"sparsifier": Quantize(), "values": Quantize()}),
    (Chain, {"sparsifier": TopK(), "values": AdaComp()}),
    (Chain, {"sparsifier": TopK(), "values": Dense()}),
    (Hierarchical, {"inner": PowerSGD(), "outer": TopK()}),
    (Hierarchical, {"inner": Dense(), "outer": Hierarchical(Dense(), Dense())}),
]


@pytest.mark.parametrize(("family", "given"), PARAMETERS)
def test_a_wrong_parameter_is_named_with_its_value_and_a_remedy(family: type, given: dict[str, object]) -> None:
    with pytest.raises(InvalidConfig) as caught:
        family(**given)
    assert caught.value.key in given
    assert repr(given[caught.value.key]) in str(caught.value)
    assert len(caught.value.remedy) > 10


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("TopKK(density=0.1)", "did you mean TopK?"),
        ("Zip(level=9)", "the names are Dense"),
        ("TopK(densty=0.1)", "densty is not a parameter: TopK takes density, selection"),
        ("TopK(0.1, 'exact', 3)", "positional arguments"),
        ("TopK(0.1, density=0.1)", "multiple values"),
        ("TopK(density=0.1, density=0.2)", "name every parameter once"),
        ("Chain(TopK())", "missing"),
        ("TopK(density=1.5)", "fraction in (0, 1]"),
        ("Quantize(bits=33)", "1 to 8"),
        ("TopK(**{'density': 0.1})", "name every parameter once"),
        ("TopK(*[0.1])", "use only compressors"),
        ("__import__('os').system('true')", "use only compressors"),
        ("(lambda: 0)()", "use only compressors"),
        ("TopK(density=0.1", "write an expression"),
        ("", "write an expression"),
        ("0.1", "start with one of"),
        ("TopK(density=" + "9" * 400 + ")", "fraction in (0, 1]"),
        ("OnCpu(" * 150 + "Dense" + ")" * 150, ""),
        ("-" * 900 + "1", ""),
        ("\0", "write an expression"),
    ],
)
def test_an_expression_that_cannot_be_read(text: str, hint: str) -> None:
    if not hint:  # deep, but legal or not: it must end one way or the other
        try:
            assert parse(str(parse(text))) == parse(text)
        except InvalidConfig:
            return
        return
    with pytest.raises(InvalidConfig) as caught:
        parse(text, "layers['fc']")
    assert hint in str(caught.value)


def test_an_expression_that_is_too_long_or_no_text() -> None:
    for what in ("TopK(density=0.1)" + " " * 1000, 7, None):
        with pytest.raises(InvalidConfig, match="write one short expression"):
            parse(what)  # type: ignore[arg-type]


def test_numbers_from_numpy_are_plain_numbers_in_a_plan() -> None:
    plan = Plan({"fc.weight": TopK(density=numpy.float64(0.25))})
    assert "density=0.25" in plan.to_json()
    assert Plan.from_json(plan.to_json()) == plan


def test_who_waits_is_part_of_a_plan_and_names_layers_of_the_model() -> None:
    plan = Plan({"a": TopK(), "b": Dense()}, {"a": "because"}, waits=["a"])
    assert Plan.from_json(plan.to_json()) == plan == Plan(plan) != Plan(dict(plan))
    assert plan.digest != Plan(dict(plan)).digest
    assert "waits" in str(plan)
    assert "waits" not in Plan(dict(plan)).to_json()
    layers = [Layer("a", (3,)), Layer("b", (3,))]
    assert plan.resolve(layers).waits == {"a"}
    with pytest.raises(InvalidConfig, match="plan: waits='c'"):
        Plan({}, waits=["c"]).resolve(layers)


@pytest.mark.parametrize("waits", ["a", [1], {"a": 1}, None])
def test_who_waits_is_a_list_of_names(waits: object) -> None:
    text = json.dumps({"laconic_plan": 1, "layers": {}, "waits": waits})
    with pytest.raises(InvalidConfig, match=r"waits.*list names of layers"):
        Plan.from_json(text)


def test_equal_plans_have_equal_bytes_and_hashes() -> None:
    """The order of entries is part of a plan, as the first pattern that fits decides."""
    one = Plan({"a*": TopK(), "*b": Dense()})
    other = Plan({"*b": Dense(), "a*": TopK()})
    layers = [Layer("ab", (3,))]
    assert one.resolve(layers) != other.resolve(layers)
    assert one != other
    assert one == Plan(dict(one))
    assert hash(one) == hash(Plan(dict(one)))


CONTENTS = {
    "truncated": '{"laconic_plan": 1, "layers": {"fc.weight": "TopK(den',
    "empty": "",
    "a list": "[1, 2]",
    "no version": '{"layers": {}}',
    "future version": '{"laconic_plan": 99, "layers": {}}',
    "a version that is no number": '{"laconic_plan": true, "layers": {}}',
    "unknown key": '{"laconic_plan": 1, "layers": {}, "colour": "red"}',
    "layers that are no map": '{"laconic_plan": 1, "layers": ["fc.weight"]}',
    "a compressor that is none": '{"laconic_plan": 1, "layers": {"fc.weight": "Zip(9)"}}',
    "a compressor that is a number": '{"laconic_plan": 1, "layers": {"fc.weight": 3}}',
    "a density out of range": '{"laconic_plan": 1, "layers": {"fc.weight": "TopK(density=0)"}}',
    "a layer twice": '{"laconic_plan": 1, "layers": {"fc.weight": "Dense", "fc.weight": "TopK(density=0.1)"}}',
    "deep nesting": "[" * 100_000,
    "ten megabytes of nothing": "[" + " " * (10 << 20),
    "more than is read": "[" + " " * (17 << 20),
}


@pytest.mark.parametrize("kind", CONTENTS)
def test_a_plan_file_that_cannot_be_used(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "plan.json"
    path.write_text(CONTENTS[kind])
    with pytest.raises(InvalidConfig) as caught:
        Plan.load(path)
    assert str(path) in str(caught.value), "the file is named"
    assert len(str(caught.value)) < 1000
    assert main(["check", str(path)]) == 2
    told = capsys.readouterr()
    assert told.err.startswith("laconic check: ")
    assert "Traceback" not in told.err
    assert not told.out


def test_a_plan_file_that_is_not_there_not_text_or_a_folder(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    for path in (tmp_path / "none.json", tmp_path / "bytes", tmp_path):
        with pytest.raises(InvalidConfig, match="name a readable plan file"):
            Plan.load(path)
        assert main(["check", str(path)]) == 2


def test_a_plan_for_another_model_names_the_layer_and_the_models_own() -> None:
    with pytest.raises(InvalidConfig) as caught:
        Plan({"fc.weight": TopK(), "conv.weight": TopK()}).resolve(LAYERS)
    text = str(caught.value)
    assert "plan['conv.weight']" in text
    assert "fc.weight, fc.bias" in text
    assert "another model" in text
    with pytest.raises(InvalidConfig, match="give a compressor"):
        Plan({"fc.weight": 3})  # type: ignore[dict-item]


def test_a_good_plan_file_is_shown_and_a_layer_name_may_hold_anything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "plan.json"
    Plan({"fc.weight": TopK(density=0.1), "größe\n\ud800": Dense()}).save(path)
    assert main(["check", str(path)]) == 0
    assert "TopK(density=0.1)" in capsys.readouterr().out


def test_the_command_line_as_a_process(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({"laconic_plan": 1, "layers": {"fc": "TopK(density=2)"}}))
    ran = subprocess.run(
        [sys.executable, "-m", "laconic", "check", str(path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 2
    assert "layers['fc']" in ran.stderr
    assert "density=2" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_command_that_does_not_exist_is_bad_input_too(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["chek"], ["check"], ["check", "a", "b"]):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("residual_dtype", torch.float16),
        ("commit", "never"),
        ("node_size", 0),
        ("node_size", True),
        ("node_size", 1.5),
        ("lanes", 0),
        ("lanes", 17),
        ("lanes", 2.0),
        ("seed", "zero"),
        ("seed", True),
    ],
)
def test_a_wrong_option_is_named(key: str, value: object) -> None:
    with pytest.raises(InvalidConfig) as caught:
        Options(**{key: value})  # type: ignore[arg-type]
    assert caught.value.key == key
    assert repr(value) in str(caught.value)


def test_an_unknown_option_names_those_there_are() -> None:
    with pytest.raises(InvalidConfig, match=r"colour='red'.*residual_dtype, commit"):
        State(TopK(), colour="red")


@pytest.mark.parametrize("what", [3, 0.1, {"fc": "TopK"}, TopK, b"plan.json"])
def test_what_is_given_to_attach_must_be_one_of_four_things(what: object) -> None:
    with pytest.raises(InvalidConfig, match="give a compressor, a policy, a Plan or the path of a plan file"):
        as_policy(what)
