"""What the tests of the co-activation memory share: nets, batches, and what codes ask of a layer."""

from types import SimpleNamespace

import reference
import torch
from conftest import encoded_blocks, residuals_of
from torch import Tensor, nn

import altmin
from altmin.core.weights.rule import as_matrix

F64 = torch.float64
MU = 0.5


def close(a: Tensor, b: Tensor, tolerance: float = 1e-10) -> None:
    torch.testing.assert_close(a.detach(), b.detach(), rtol=tolerance, atol=tolerance)


def constant(mu: float = MU) -> altmin.Penalty:
    return altmin.Penalty(mu, increment=0.0, maximum=None)


def mlp(bias: bool = True, seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(4, 5, bias), nn.Tanh(), nn.Linear(5, 6, bias), nn.Tanh(), nn.Linear(6, 3, bias)
    ).double()


def batch(seed: int, n: int = 12) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, 4, generator=generator, dtype=F64), torch.randint(3, (n,), generator=generator)


def trainer(model, **options) -> altmin.AltMin:
    """The paper's memory where nothing else is said: codes ask once (rate=None), and the fit is exact."""
    rule = altmin.FittedMemory(
        **{"rate": None, "damping": 0.1, "steps": None, "rest": altmin.LocalSGD(lr=0.1, momentum=0.0), **options}
    )
    return altmin.AltMin(model, weights=rule, penalty=constant())


def memories(am: altmin.AltMin) -> dict[int, SimpleNamespace]:
    """A, B and their samples by block, from the state A, R = B - W A of its rule."""
    kept = {l: s for l, s in am.updates.states.items() if "A" in s}
    of = {l: as_matrix(am.theta[l]).detach() for l in kept}
    return {
        l: SimpleNamespace(A=s["A"].clone(), B=of[l] @ s["A"] + s["R"], samples=s["samples"].item())
        for l, s in kept.items()
    }


def pairs(model, x, y, l: int) -> list[tuple[Tensor, Tensor]]:
    """What the package's codes ask hidden layer l to map, with the model's present weights: its input with a 1 for the
    bias, to its output less what it is left with."""
    (each, above), r = encoded_blocks(model, x)[0][l : l + 2], residuals_of(model, altmin.GradientCodes(), x, y, MU)[l]
    one = torch.ones(len(x), int(model[2 * l].bias is not None), dtype=F64)
    a = torch.cat([reference.of(model).activations[l](each.input), one], 1)
    return list(zip(a, above.input - r.scale * r.delta, strict=True))


def joined(layer: nn.Module) -> Tensor:
    W = layer.weight.detach().flatten(1)
    return W if layer.bias is None else torch.cat([W, layer.bias.detach().unsqueeze(1)], 1)


def problem(seed: int, columns: int = 5, rows: int = 3, n: int = 20) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    a, c = (torch.randn(n, m, generator=generator, dtype=F64) for m in (columns, rows))
    return a, c, a.T @ a, c.T @ a, torch.randn(rows, columns, generator=generator, dtype=F64)
