"""`altmin.explain` against autograd, closed forms and the trainer's own step; `altmin.audit` against planted graphs."""

import copy
import dataclasses
import json
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import altmin
from altmin.calculus import CLOSED_FORMS, AnyModule, Discrete, ReLU
from altmin.calculus.context import LOCAL


def batch(samples: int = 24) -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    return torch.randn(samples, 5), torch.arange(samples) % 3


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 3))


def noisy_net() -> nn.Sequential:
    """With batch norm and dropout, which update statistics and draw random numbers."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))


def convolutional() -> nn.Sequential:
    torch.manual_seed(0)
    pooled = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout2d(0.3), nn.Flatten()
    return nn.Sequential(*pooled, nn.Linear(36, 3))


def signs() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), altmin.Sign(), nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 3))


def with_softmax() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 5), nn.ReLU(), nn.Linear(5, 5), nn.Softmax(1), nn.Linear(5, 3))


IMAGES = torch.randn(24, 1, 8, 8)
CASES: dict[str, tuple[Callable[[], nn.Sequential], Tensor, Tensor]] = {
    "rectified": (net, *batch()),
    "dropout and batch norm": (noisy_net, *batch()),
    "convolutional": (convolutional, IMAGES, batch()[1]),
}


@pytest.mark.parametrize("case", CASES)
def test_gradients_become_backprops_as_the_share_goes_to_zero(case: str) -> None:
    make, x, y = CASES[case]
    for share, close in ((0.0, 1e-5), (1e-4, 1e-3)):
        rows = altmin.explain(make(), x, y, share=share).rows
        assert len(rows) > 1
        for row in rows:
            assert row.cosine == pytest.approx(1, abs=close)
            assert row.gradient == pytest.approx(row.backprop, rel=10 * close)
            assert row.taken == pytest.approx(0, abs=2 * share + 1e-6)
    full = altmin.explain(make(), x, y, share=1.0, penalty=1e-3, order="codes-first").rows
    assert min(row.cosine or 0.0 for row in full) < 0.999


def test_discrete_nets_are_compared_with_the_straight_through_estimate() -> None:
    found = altmin.explain(signs(), *batch(), codes="straight-through", share=1e-4)
    assert found.estimated
    assert [row.cosine for row in found.rows] == pytest.approx([1, 1, 1], abs=1e-4)


def test_a_single_block_has_backprops_gradient_and_no_code() -> None:
    torch.manual_seed(0)
    model, (x, y) = nn.Sequential(nn.Linear(5, 3)), batch()
    found = altmin.explain(model, x, y)
    (row,) = found.rows
    value = nn.functional.cross_entropy(model(x), y)
    norm = math.sqrt(sum(float(g.square().sum()) for g in torch.autograd.grad(value, model.parameters())))
    assert (row.gradient, row.backprop) == (pytest.approx(norm, rel=1e-5),) * 2
    assert (row.movement, row.dead) == (None, None)
    assert "one block" in found.advice[0]


def test_movement_and_taken_are_those_of_the_formula() -> None:
    """Linear net with squared error: o = W2 c, H = 2/(n k) I, so a = |g|^2 / (2/(nk) |W2 g|^2 + 2 mu / n |g|^2)."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 4, bias=False), nn.Linear(4, 2, bias=False))
    x, y, mu = torch.randn(6, 5), torch.randn(6, 2), 0.7
    n, k, W = 6, 2, model[1].weight.detach()
    delta = (2 / (n * k) * (model(x) - y)).detach()
    g = delta @ W
    Jg = g @ W.T
    a = float(g.square().sum() / (2 / (n * k) * Jg.square().sum() + 2 * mu / n * g.square().sum()))
    below, above = altmin.explain(model, x, y, loss=nn.MSELoss(), share=1.0, penalty=mu).rows
    assert below.movement == pytest.approx(a * float(g.norm() / model[0](x).detach().norm()), rel=1e-4)
    assert above.taken == pytest.approx(float((2 / (n * k) * a * Jg).norm() / delta.norm()), rel=1e-4)
    assert above.taken > 0.05, "else the bound would be tested"
    short = altmin.explain(model, x, y, loss=nn.MSELoss(), share=0.05, penalty=mu).rows
    assert short[1].taken == pytest.approx(0.05, rel=1e-3)


def test_dead_units_are_counted_and_get_no_gradient() -> None:
    model, (x, y) = net(), batch()
    with torch.no_grad():
        model[0].bias.fill_(-100)
    found = altmin.explain(model, x, y)
    first, *rest = found.rows
    assert (first.dead, first.gradient, first.backprop, first.cosine, first.change) == (1.0, 0.0, 0.0, None, 0.0)
    assert all(row.gradient > 0 for row in rest)
    assert any("units of block 0 are dead" in line for line in found.advice)
    with torch.no_grad():
        model[0].bias[:3] = torch.tensor([100, 100, 0])  # the third is above 0 for some samples
    assert altmin.explain(model, x, y).rows[0].dead == 5 / 8
    with torch.no_grad():
        (images := convolutional())[1].bias[0] = -100
    assert altmin.explain(images, IMAGES, y).rows[0].dead == 1 / 4, "units of a convolution are channels"


def test_frozen_parameters_do_not_count() -> None:
    model, (x, y) = net(), batch()
    model[2].weight.requires_grad_(False)
    model[0].requires_grad_(False)
    first, second, _ = altmin.explain(model, x, y, share=0.0).rows
    assert (first.gradient, first.cosine) == (0.0, None)
    (bias,) = torch.autograd.grad(nn.functional.cross_entropy(model(x), y), model[2].bias)
    assert second.gradient == pytest.approx(float(bias.norm()), rel=1e-4)


def test_neither_model_nor_random_numbers_nor_solver_change() -> None:
    model, (x, y) = noisy_net(), batch()
    model(x).sum().backward()
    codes, penalty = altmin.GradientCodes(share=0.3), altmin.Penalty(2.0)
    tensors = {**model.state_dict(), "x": x, "y": y, **{n: p.grad for n, p in model.named_parameters()}}
    before, settings = copy.deepcopy(tensors), (dict(vars(codes)), dict(vars(penalty)))
    modules, state = [dict(vars(m)) for m in model.modules()], torch.get_rng_state()
    altmin.explain(model, x, y, codes=codes, penalty=penalty)
    altmin.audit(model, x, y, codes=codes, penalty=penalty)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(tensors[name], before[name]) for name in before)
    assert (dict(vars(codes)), dict(vars(penalty))) == settings
    for module, attributes in zip(model.modules(), modules, strict=True):
        assert vars(module).keys() == attributes.keys()
        assert all(vars(module)[name] is value for name, value in attributes.items())


@pytest.mark.parametrize("look", [altmin.audit, altmin.explain])
def test_a_trainer_is_looked_at_as_its_model_and_options(look: Any) -> None:
    model, (x, y) = with_softmax(), batch()
    am = altmin.AltMin(model, codes=altmin.GradientCodes(share=0.2))
    field = "rows" if look is altmin.explain else "findings"
    assert getattr(look(model, x, y, "am-adam", share=0.2), field) == getattr(look(am, x, y), field)
    assert "Softmax" in str(look(am, x, y))
    assert am.penalty.value == am.penalty.start


ADVICE: dict[str, tuple[Callable[[], nn.Sequential], Callable[[Tensor], Tensor], dict[str, Any]]] = {
    "standardise": (net, lambda x: 255 * x.sigmoid(), {}),
    "shorter steps": (net, lambda x: x, {"lr": 1.0}),
    "longer steps": (net, lambda x: x, {"lr": 1e-9}),
    "lower the share": (net, lambda x: x, {"share": 1.0, "penalty": 1e-3}),
    "BatchNorm1d, Dropout in eval mode": (lambda: noisy_net().eval(), lambda x: x, {}),
    "vanish": (
        lambda: nn.Sequential(*[nn.Sequential(nn.Linear(5, 5), nn.Sigmoid()) for _ in range(12)]),
        lambda x: x,
        {},
    ),
    "nothing stands out": (net, lambda x: x, {}),
}


@pytest.mark.parametrize("words", ADVICE)
def test_advice_is_given_where_its_reason_holds(words: str) -> None:
    make, change, options = ADVICE[words]
    x, y = batch()
    torch.manual_seed(0)
    advice = altmin.explain(make(), change(x), y, **options).advice
    assert any(words in line for line in advice)
    assert all("\n" not in line and len(line) < 120 for line in advice)
    if words == "nothing stands out":
        assert len(advice) == 1


def test_an_explanation_is_plain_data_and_a_table() -> None:
    found = altmin.explain(with_softmax(), *batch())
    again = json.loads(json.dumps(found.to_dict()))
    assert set(again["rows"][0]) == {field.name for field in dataclasses.fields(found.rows[0])}
    assert [row["autograd"] for row in again["rows"]] == [[], [], ["Softmax"]]
    text = str(found)
    assert all(f"{row.gradient:.3g}" in text for row in found.rows)
    assert text.endswith("\n".join(f"- {line}" for line in found.advice))


@pytest.mark.parametrize(
    "change, options",
    [
        (lambda x, y: (x, y), {"method": "adam"}),
        (lambda x, y: (x, y), {"method": "am-adm"}),
        (lambda x, y: (x, y), {"shares": 0.1}),
        (lambda x, y: (x, y + 1), {}),
        (lambda x, y: (x[:, :4], y), {}),
        (lambda x, y: (x * math.nan, y), {}),
    ],
)
def test_what_cannot_be_explained_is_refused(change: Any, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        altmin.explain(net(), *change(*batch()), **options)
    with pytest.raises(ValueError, match="own options"):
        altmin.explain(altmin.AltMin(net()), *batch(), share=0.2)


def test_an_explanation_asks_for_a_batch() -> None:
    for given in ((), batch()[:1]):
        with pytest.raises(TypeError, match=r"give .* explain\(model, x, y\)"):
            altmin.explain(net(), *given)


def test_no_graph_crosses_a_block() -> None:
    loss = nn.CrossEntropyLoss()
    found = altmin.audit(altmin.AltMin(with_softmax(), loss=lambda output, y: 2 * loss(output, y)), *batch())
    assert found.clean
    assert [finding.local for finding in found.findings] == [[], [], ["Softmax"], ["the given function"]]


class Leaky(ReLU):
    """Returns its output with a graph."""

    def forward(self, p: Any, x: Tensor, context: Any = LOCAL) -> Any:
        with torch.enable_grad():
            y = x.detach().requires_grad_().clamp_min(0)
        return y, y.detach()


class Attached(AnyModule):
    """Returns its output with the graph."""

    def forward(self, p: Any, x: Any, context: Any = LOCAL) -> Any:
        _, saved = super().forward(p, x, context)
        return saved.y, saved


class Beyond(AnyModule):
    """Has a graph that begins before its own input."""

    def forward(self, p: Any, x: Any, context: Any = LOCAL) -> Any:
        y, saved = super().forward(p, x, context)
        with torch.enable_grad():
            x = 1 * x.detach().requires_grad_()
            beyond = self._call(p, [x], context, saved.start)[0]
        return y, dataclasses.replace(saved, xs=[x], p=[], y=beyond)


@pytest.mark.parametrize(
    "module, leaky, block", [(nn.ReLU, Leaky, 1), (nn.Softmax, Attached, 2), (nn.Softmax, Beyond, 2)]
)
def test_a_map_that_lets_a_graph_out_is_found(
    monkeypatch: pytest.MonkeyPatch, module: Any, leaky: Any, block: int
) -> None:
    monkeypatch.setitem(CLOSED_FORMS, module, leaky)
    found = altmin.audit(with_softmax(), *batch())
    assert not found.clean
    assert [finding.escaped > 0 for finding in found.findings] == [l == block for l in range(4)]


def test_the_audit_tells_search_estimate_and_derivative_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    class WithDerivative(Discrete):
        def vjp(self, p: Any, saved: Any, v: Tensor) -> Tensor:
            return v

        jvp = vjp

    def counts(codes: Any) -> tuple[int, int]:
        finding = altmin.audit(altmin.AltMin(signs(), codes=codes), *batch()).findings[1]
        assert finding.discrete == ["Sign"]
        return finding.estimates, finding.derivatives

    assert counts("discrete") == (0, 0)
    assert counts("straight-through") == (2, 0)
    monkeypatch.setitem(CLOSED_FORMS, altmin.Sign, WithDerivative)
    unaware = type("Unaware", (altmin.GradientCodes,), {})()  # takes the derivative that it should not
    assert counts(unaware)[1] > 0
