"""A small model with a plan of every kind of conversation."""

from laconic import AdaComp, Cast, Chain, Dense, Divided, Hierarchical, Natural, Plan, PowerSGD, Quantize, RandomK, TopK
from laconic.layer import Layer

LAYERS = (
    Layer("stem.weight", (8, 3, 3, 3)),
    Layer("stem.bias", (8,)),
    Layer("a.weight", (16, 12)),
    Layer("a.bias", (16,)),
    Layer("b.weight", (12, 16)),
    Layer("c.weight", (31, 7)),
    Layer("d.weight", (20, 10)),
    Layer("e.weight", (9, 11)),
    Layer("f.weight", (13, 8)),
    Layer("head.weight", (10, 16)),
    Layer("head.bias", (10,)),
    Layer("scale", ()),
)

MIXED = Plan(
    {
        "stem.weight": AdaComp(bin=8),
        "a.weight": TopK(density=0.1),
        "b.weight": PowerSGD(rank=2),
        "c.weight": Divided(Quantize(bits=4)),
        "d.weight": Hierarchical(Dense(), Chain(TopK(density=0.1), Quantize(bits=4))),
        "e.weight": RandomK(density=0.2),
        "f.weight": Cast(),
        "head.weight": Natural(),
    }
)

BUCKETS = (
    ("head.bias", "head.weight", "f.weight"),
    ("scale", "e.weight", "d.weight", "c.weight", "b.weight"),
    ("a.bias", "a.weight", "stem.bias", "stem.weight"),
)

OTHER = Plan(
    {
        "stem.weight": TopK(density=0.2),
        "a.*": Dense(),
        "b.weight": PowerSGD(rank=4),
        "c.weight": Quantize(bits=2),
        "d.weight": Dense(),
        "e.weight": Natural(),
        "f.weight": Chain(TopK(density=0.2), Cast(dtype="fp16")),
        "head.weight": AdaComp(bin=50),
    }
)
