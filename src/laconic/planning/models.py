"""Well-known models as tensor lists, built from their published shapes, with a model of their backward pass.

The backward model: a weight that is applied at `uses` places of an example costs 2 * numel * uses multiply-adds an
example in the backward pass (one product for the gradient of its input, one of its weight), half of that in the forward
pass. Convolutions of 3 x 3 cost half, since they are computed by Winograd's method. Every tensor costs at least a
launch. A device reaches `SUSTAINED` of its peak. Good to perhaps 30%: measure with a probe where it matters.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate

from laconic.errors import InvalidConfig
from laconic.layer import Layer
from laconic.planning.profile import Trace

PEAK = {"v100": 15.7e12, "a100": 156e12, "h100": 495e12, "cpu": 0.5e12}  # floating-point operations a second
SUSTAINED = 0.5
LAUNCH = 10e-6  # seconds, for tensors whose arithmetic is nothing


@dataclass(frozen=True)
class Weight:
    """A tensor of a model and at how many places of one example it is applied; 0 for norms and biases."""

    name: str
    shape: tuple[int, ...]
    uses: int = 0


@dataclass(frozen=True)
class Model:
    """A model's tensors in the order of its definition, and the batch a device usually takes."""

    name: str
    weights: tuple[Weight, ...]
    batch: int

    @property
    def parameters(self) -> int:
        return sum(Layer(weight.name, weight.shape).numel for weight in self.weights)

    def trace(self, device: str = "v100", batch: int | None = None) -> Trace:
        """The backward pass on a device: the last tensor is ready first."""
        rate = PEAK[device] * SUSTAINED
        examples = self.batch if batch is None else batch
        layers = [Layer(weight.name, weight.shape) for weight in self.weights]
        forward = [2 * x.numel * w.uses * examples / rate for x, w in zip(layers, self.weights, strict=True)]
        backward = [max(LAUNCH, 2 * seconds) for seconds in reversed(forward)]
        ready = tuple(accumulate(backward))
        return Trace(tuple(reversed(layers)), ready, forward=sum(max(LAUNCH / 2, seconds) for seconds in forward))


def _conv(name: str, cin: int, cout: int, kernel: int, side: int, bias: bool = False) -> list[Weight]:
    places = side * side // 2 if kernel == 3 else side * side
    made = [Weight(f"{name}.weight", (cout, cin, kernel, kernel), places)]
    return [*made, Weight(f"{name}.bias", (cout,))] if bias else made


def _linear(name: str, cin: int, cout: int, uses: int = 1, bias: bool = True) -> list[Weight]:
    made = [Weight(f"{name}.weight", (cout, cin), uses)]
    return [*made, Weight(f"{name}.bias", (cout,))] if bias else made


def _norm(name: str, size: int) -> list[Weight]:
    return [Weight(f"{name}.weight", (size,)), Weight(f"{name}.bias", (size,))]


def vgg16() -> Model:
    """arXiv 1409.1556, configuration D, ImageNet."""
    weights, cin, side, index = [], 3, 224, 0
    for width, convolutions in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(convolutions):
            weights += _conv(f"features.{index}", cin, width, 3, side, bias=True)
            cin, index = width, index + 2
        side, index = side // 2, index + 1
    weights += _linear("classifier.0", 512 * 7 * 7, 4096) + _linear("classifier.3", 4096, 4096)
    return Model("vgg16", tuple(weights + _linear("classifier.6", 4096, 1000)), 32)


def _resnet(name: str, blocks: tuple[int, ...]) -> Model:
    """arXiv 1512.03385, bottleneck form, ImageNet."""
    weights = _conv("conv1", 3, 64, 7, 112) + _norm("bn1", 64)
    cin, side = 64, 56
    for stage, count in enumerate(blocks):
        width = 64 << stage
        for block in range(count):
            into = side
            if stage and not block:
                side //= 2
            key = f"layer{stage + 1}.{block}"
            weights += _conv(f"{key}.conv1", cin, width, 1, into) + _norm(f"{key}.bn1", width)
            weights += _conv(f"{key}.conv2", width, width, 3, side) + _norm(f"{key}.bn2", width)
            weights += _conv(f"{key}.conv3", width, 4 * width, 1, side) + _norm(f"{key}.bn3", 4 * width)
            if not block:
                weights += _conv(f"{key}.downsample.0", cin, 4 * width, 1, side)
                weights += _norm(f"{key}.downsample.1", 4 * width)
            cin = 4 * width
    return Model(name, tuple(weights + _linear("fc", 2048, 1000)), 32)


def resnet50() -> Model:
    return _resnet("resnet50", (3, 4, 6, 3))


def resnet101() -> Model:
    return _resnet("resnet101", (3, 4, 23, 3))


def bert_base() -> Model:
    """arXiv 1810.04805: 12 layers of 768, with pooler and the masked-language head (whose matrix is the embedding)."""
    length, width = 384, 768
    weights = [
        Weight("embeddings.word", (30522, width), length),  # used by the head
        Weight("embeddings.position", (512, width)),
        Weight("embeddings.type", (2, width)),
        *_norm("embeddings.norm", width),
    ]
    for layer in range(12):
        key = f"encoder.{layer}"
        for part in ("query", "key", "value", "output"):
            weights += _linear(f"{key}.attention.{part}", width, width, length)
        weights += _norm(f"{key}.attention.norm", width)
        weights += _linear(f"{key}.up", width, 4 * width, length) + _linear(f"{key}.down", 4 * width, width, length)
        weights += _norm(f"{key}.norm", width)
    weights += _linear("pooler", width, width) + _linear("head.transform", width, width, length)
    weights += _norm("head.norm", width)
    return Model("bert-base", (*weights, Weight("head.bias", (30522,))), 8)


def gpt2() -> Model:
    """GPT-2 small, 12 layers of 768; the head's matrix is the embedding."""
    length, width = 1024, 768
    weights = [Weight("wte", (50257, width), length), Weight("wpe", (1024, width))]
    for layer in range(12):
        key = f"h.{layer}"
        weights += _norm(f"{key}.ln_1", width) + _linear(f"{key}.attn.c_attn", width, 3 * width, length)
        weights += _linear(f"{key}.attn.c_proj", width, width, length) + _norm(f"{key}.ln_2", width)
        weights += _linear(f"{key}.mlp.c_fc", width, 4 * width, length)
        weights += _linear(f"{key}.mlp.c_proj", 4 * width, width, length)
    return Model("gpt2", (*weights, *_norm("ln_f", width)), 4)


def lstm() -> Model:
    """A word language model after arXiv 1708.02182: two LSTM layers of 1,500, Wikitext-2's vocabulary, head untied."""
    length, width, words = 35, 1500, 33278
    weights = [Weight("encoder.weight", (words, width))]
    for layer in range(2):
        for part in ("ih", "hh"):
            weights.append(Weight(f"rnn.weight_{part}_l{layer}", (4 * width, width), length))
        weights += [Weight(f"rnn.bias_{part}_l{layer}", (4 * width,)) for part in ("ih", "hh")]
    return Model("lstm", (*weights, *_linear("decoder", width, words, length)), 80)


def transformer_7b() -> Model:
    """A decoder of 7 billion parameters as published in arXiv 2302.13971: 32 layers of 4,096, hidden 11,008."""
    length, width, hidden = 2048, 4096, 11008
    weights = [Weight("embedding", (32000, width))]
    for layer in range(32):
        key = f"layers.{layer}"
        for part in ("wq", "wk", "wv", "wo"):
            weights.append(Weight(f"{key}.attention.{part}", (width, width), length))
        weights.append(Weight(f"{key}.feed_forward.w1", (hidden, width), length))
        weights.append(Weight(f"{key}.feed_forward.w2", (width, hidden), length))
        weights.append(Weight(f"{key}.feed_forward.w3", (hidden, width), length))
        weights += [Weight(f"{key}.attention_norm", (width,)), Weight(f"{key}.ffn_norm", (width,))]
    return Model("transformer-7b", (*weights, Weight("norm", (width,)), Weight("output", (32000, width), length)), 1)


MODELS: dict[str, Callable[[], Model]] = {
    "vgg16": vgg16,
    "resnet50": resnet50,
    "resnet101": resnet101,
    "bert-base": bert_base,
    "gpt2": gpt2,
    "lstm": lstm,
    "transformer-7b": transformer_7b,
}


def model_named(name: str) -> Model:
    """The model of that name, however its dashes and capitals are written.

    >>> model_named("BERT_base").name
    'bert-base'
    """
    key = name.strip().lower().replace("_", "-")
    aliases = {made.replace("-", ""): made for made in MODELS}
    found = aliases.get(key.replace("-", ""))
    if found is None:
        raise InvalidConfig("model", name, f"choose one of {', '.join(MODELS)}, or give --profile")
    return MODELS[found]()
