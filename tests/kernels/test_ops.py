"""As torch operators the kernels keep what their schemas say, and survive torch.compile."""

import torch

from laconic.kernels.ops import register


def test_operators_pass_opcheck() -> None:
    ops = register()
    n = 1000
    x, residual = torch.randn(n), torch.randn(n)
    codes, steps = torch.zeros(n // 2, dtype=torch.uint8), torch.zeros(2)
    picked = torch.zeros(10, dtype=torch.int32), torch.zeros(10)
    calls = [
        (ops.energy, (x,)),
        (ops.fold, (x, residual)),
        (ops.settle, (x, residual)),
        (ops.quantize, (x, residual, codes, steps, 4, 512, False, None)),
        (ops.dequantize_add, (codes, steps, x, 4, 512, 0.5)),
        (ops.top_k, (x, None, *picked)),
        (ops.sampled_top_k, (x, residual, 8, *picked)),
        (ops.scatter_add, (*picked, x, 0.5)),
        (ops.sign, (x, residual, codes, True)),
        (ops.unsign_add, (codes, -1.0, 1.0, x, 0.5)),
        (ops.natural, (x, residual, torch.zeros(n, dtype=torch.uint8), 7)),
        (ops.adacomp, (x, residual, 50, torch.zeros(n, dtype=torch.uint8))),
        (ops.ternary, (x, residual, torch.zeros(64, dtype=torch.uint8), 512, 32)),
        (ops.unternary_add, (torch.zeros(64, dtype=torch.uint8), x, 512, 32, 0.5)),
        (ops.narrow, (x, residual, torch.zeros(n, dtype=torch.bfloat16), 0.5)),
        (ops.widen_add, (torch.ones(n, dtype=torch.float16), x, 0.5)),
    ]
    for operator, arguments in calls:
        checks = torch.library.opcheck(
            operator.default, arguments, test_utils=("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
        )
        assert set(checks.values()) == {"SUCCESS"}


def test_a_traced_function_calls_them() -> None:
    ops = register()

    def step(x: torch.Tensor, residual: torch.Tensor, codes: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
        energy = ops.quantize(x, residual, codes, steps, 8, 64, False, None)
        mean = torch.zeros_like(x)
        ops.dequantize_add(codes, steps, mean, 8, 64, 1.0)
        return mean * 2 + 0 * energy

    def arguments() -> tuple[torch.Tensor, ...]:
        rng = torch.Generator().manual_seed(1)
        x, residual = torch.randn(256, generator=rng), torch.randn(256, generator=rng)
        return x, residual, torch.zeros(256, dtype=torch.uint8), torch.zeros(4)

    eager, traced = arguments(), arguments()
    want, got = step(*eager), torch.compile(step, backend="aot_eager", fullgraph=True)(*traced)
    assert torch.equal(want, got)
    assert torch.equal(eager[0], traced[0]), "x holds the same leftover"
