"""Profiles: what is written is read again, and what cannot be used is named."""

import json

import pytest

from laconic.errors import InvalidConfig
from laconic.exchange import Op
from laconic.layer import Layer
from laconic.planning.costs import Kernel
from laconic.planning.link import Line, what_if
from laconic.planning.models import MODELS, model_named
from laconic.planning.profile import Profile, Trace
from laconic.world import Scope, World

WORLD = World(0, 16, 8)


def made() -> Profile:
    kernels = {("TopK(density=0.01)", "v100"): Kernel(Line(1e-4, 1e-10, 0.1), Line(1e-5, 1e-11))}
    return Profile("vgg16", WORLD, model_named("vgg16").trace(), what_if(WORLD, 1e10, 1e12), "v100", kernels)


def changed(**changes: object) -> str:
    return json.dumps(json.loads(made().to_json()) | changes)


def test_round_trip():
    assert Profile.from_json(made().to_json()) == made()
    assert Profile.from_json(made().to_json()).to_json() == made().to_json()


def test_a_line_for_each_fact():
    text = made().to_json().splitlines()
    assert sum('"ready"' in line for line in text) == 32


LAYER = {"name": "w", "shape": [4], "dtype": "float32", "ready": 0.1, "spread": 0.0}
LINK = {"op": "sum", "scope": "world", "alpha": 1e-5, "beta": 1e-9, "error": 0.0}


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("{", "profile"),
        ("[]", "laconic_profile"),
        (changed(laconic_profile=1), "laconic_profile"),
        (changed(extra=1), "extra"),
        (changed(layers=[]), "layers"),
        (changed(layers=[LAYER | {"ready": -1}]), "ready"),
        (changed(layers=[LAYER | {"ready": float("nan")}]), "ready"),
        (changed(layers=[LAYER | {"ready": "soon"}]), "ready"),
        (changed(layers=[LAYER | {"shape": [-1]}]), "shape"),
        (changed(layers=[LAYER | {"shape": [0]}]), "shape"),
        (changed(layers=[LAYER | {"dtype": "int8"}]), "dtype"),
        (changed(layers=[LAYER, LAYER]), "layers"),
        (changed(layers=[LAYER, LAYER | {"name": "v", "ready": 0.05}]), "ready"),
        (changed(layers=[1]), "layers"),
        (changed(layers=7), "layers"),
        (changed(links=[LINK | {"alpha": -1e-5}]), "alpha"),
        (changed(links=[LINK | {"beta": float("nan")}]), "beta"),
        (changed(links=[LINK | {"op": "shout"}]), "links"),
        (changed(links=[{"op": "sum"}]), "links"),
        (changed(world_size=0), "world_size"),
        (changed(node_size=5), "node_size"),
        (changed(device="tpu"), "device"),
        (changed(forward=None), "forward"),
    ],
)
def test_what_cannot_be_used_is_named(text, key):
    with pytest.raises(InvalidConfig, match=key):
        Profile.from_json(text)


def test_another_model_or_world_is_refused():
    profile = made()
    profile.require(list(profile.trace.layers), WORLD)
    with pytest.raises(InvalidConfig, match="2 machines of 8"):
        profile.require(world=World(0, 8, 8))
    with pytest.raises(InvalidConfig, match="another model"):
        profile.require(list(model_named("gpt2").trace().layers))
    with pytest.raises(InvalidConfig, match="another model"):
        profile.require(list(profile.trace.layers[:-1]))


def test_an_empty_model_is_refused():
    with pytest.raises(InvalidConfig, match="layers"):
        Trace((), ())


def test_a_link_that_was_not_measured_is_named():
    from laconic.planning.link import collective_seconds

    with pytest.raises(InvalidConfig, match="gather node"):
        collective_seconds({(Op.SUM, Scope.NODE): (Line(0, 0),)}, Op.GATHER, Scope.NODE, 8)


@pytest.mark.parametrize(
    ("name", "millions", "tensors"),
    [
        ("vgg16", 138.357544, 32),  # torchvision's count, and Espresso's number of tensors
        ("resnet50", 25.557032, 161),
        ("resnet101", 44.549160, 314),
        ("gpt2", 124.439808, 148),
        ("transformer-7b", 6738.415616, 291),
    ],
)
def test_models_have_their_published_size(name, millions, tensors):
    model = MODELS[name]()
    assert model.parameters == round(millions * 1e6)
    assert len(model.weights) == tensors


def test_bert_and_lstm_are_near_their_published_size():
    assert MODELS["bert-base"]().parameters == pytest.approx(110e6, rel=0.01)
    assert MODELS["lstm"]().parameters == pytest.approx(136e6, rel=0.01)


@pytest.mark.parametrize("name", MODELS)
def test_a_trace_is_the_model_backwards_and_twice_its_forward_pass(name):
    model = MODELS[name]()
    trace = model.trace("v100")
    assert [layer.name for layer in trace.layers] == [weight.name for weight in reversed(model.weights)]
    assert trace.ready[-1] == pytest.approx(2 * trace.forward, rel=1e-6)
    assert model.trace("v100", 2 * model.batch).ready[-1] > 1.5 * trace.ready[-1]


def test_layers_that_share_a_trace_compare():
    assert Trace((Layer("w", (4,)),), (0.1,)) == Trace((Layer("w", (4,)),), (0.1,), (0.0,))
