"""f is the paper's eq. 3, and every loss comes with its own gradient and curvature."""

import pytest
import reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

import altmin
from altmin.codes.linesearch import LossAbove
from altmin.objective import AnyLoss, CrossEntropy, Evaluation, SquaredError, adapt

F64 = torch.float64


def evaluate(loss, o: Tensor, y: Tensor) -> Evaluation:
    """The loss at one output, as the code update sees it."""
    return LossAbove(adapt(loss), o, y, mu=1.0).start


def model_and_codes(seed: int = 0) -> tuple[nn.Sequential, Tensor, Tensor, list[Tensor]]:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    x, y = torch.randn(7, 4, dtype=F64), torch.randint(3, (7,))
    return model, x, y, [torch.randn(7, 5, dtype=F64), torch.randn(7, 6, dtype=F64)]


@pytest.mark.parametrize("mu", [0.0, 0.1, 1.0, 40.0])
def test_f_is_the_sum_over_samples_of_the_papers_equation(mu):
    model, x, y, codes = model_and_codes()
    ours = altmin.objective(altmin.split(model), codes, x, y, mu, nn.CrossEntropyLoss())
    each = [[c[t] for c in codes] for t in range(len(x))]
    torch.testing.assert_close(ours, reference.f(reference.of(model), x, y, each, mu, reference.cross_entropy))


def test_f_with_the_squared_error_is_the_sum_over_samples_of_the_papers_equation():
    model, x, _, codes = model_and_codes()
    y = torch.randn(7, 3, dtype=F64)
    ours = altmin.objective(altmin.split(model), codes, x, y, 0.7, nn.MSELoss())
    each = [[c[t] for c in codes] for t in range(len(x))]
    torch.testing.assert_close(ours, reference.f(reference.of(model), x, y, each, 0.7, reference.squared_error))


def test_at_the_encoded_codes_f_is_the_loss_whatever_mu():
    model, x, y, _ = model_and_codes()
    codes = [model[:1](x), model[:3](x)]
    for mu in (0.01, 100.0):
        ours = altmin.objective(altmin.split(model), codes, x, y, mu, nn.CrossEntropyLoss())
        torch.testing.assert_close(ours, F.cross_entropy(model(x), y))


def custom(output: Tensor, y: Tensor) -> Tensor:
    return F.softplus(-output.gather(1, y.unsqueeze(1))).mean()


LABELS = {
    "cross-entropy": nn.CrossEntropyLoss(),
    "smoothed": nn.CrossEntropyLoss(label_smoothing=0.3),
    "weighted": nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 0.5, 1.0], dtype=F64)),
    "ignoring a class": nn.CrossEntropyLoss(ignore_index=2),
    "custom": custom,
}
TARGETS = {
    "squared": nn.MSELoss(),
    "L1": nn.L1Loss(),
    "Huber": nn.HuberLoss(),
    "soft labels": nn.CrossEntropyLoss(),
    "smoothed soft labels": nn.CrossEntropyLoss(label_smoothing=0.1),
}
KINDS = {"cross-entropy": CrossEntropy, "smoothed": CrossEntropy, "soft labels": CrossEntropy, "squared": SquaredError}


def targets(name: str, seed: int, n: int = 6) -> tuple[nn.Module, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    o = 2 * torch.randn(n, 4, generator=generator, dtype=F64)
    if name in LABELS:
        return LABELS[name], o, torch.randint(4, (n,), generator=generator)
    y = torch.randn(n, 4, generator=generator, dtype=F64)
    return TARGETS[name], o, y.softmax(1) if "soft" in name else y


@pytest.mark.parametrize("name", [*LABELS, *TARGETS])
@given(seed=st.integers(0, 10**6))
@settings(max_examples=5)
def test_a_losss_values_force_and_curvature_are_those_of_autograd(name, seed):
    loss, o, y = targets(name, seed)
    at = evaluate(loss, o, y)
    leaf = o.clone().requires_grad_()
    total = loss(leaf, y) * len(o)
    (gradient,) = torch.autograd.grad(total, leaf)
    torch.testing.assert_close(at.values.sum(), total.detach())
    torch.testing.assert_close(at.force, -gradient)
    if name in KINDS:
        assert type(adapt(loss)) is KINDS[name]
        assert len(at.values) == len(o), "a known loss can tell samples apart"
    if at.curvature is not None:
        q = torch.randn_like(o)
        H = torch.autograd.functional.hessian(lambda o: loss(o, y) * len(o), o).reshape(o.numel(), o.numel())
        torch.testing.assert_close(at.curvature(q).sum(), q.flatten() @ H @ q.flatten())
        for t in range(len(o)):
            alone = loss(o[t : t + 1], y[t : t + 1])
            torch.testing.assert_close(at.values[t], alone)


def test_images_of_squared_errors_are_averaged_over_a_samples_outputs():
    torch.manual_seed(0)
    o, y = torch.randn(2, 3, 2, 5, dtype=F64)
    at = evaluate(nn.MSELoss(), o, y)
    torch.testing.assert_close(at.values.mean(), F.mse_loss(o, y))
    torch.testing.assert_close(at.force, 2 * (y - o) / 10)


def test_a_loss_that_sums_is_left_a_sum():
    torch.manual_seed(0)
    o, y = torch.randn(5, 4, dtype=F64, requires_grad=True), torch.randint(4, (5,))
    loss = nn.CrossEntropyLoss(reduction="sum")
    at = evaluate(loss, o.detach(), y)
    total = loss(o, y)
    torch.testing.assert_close(at.values.sum(), total.detach())
    torch.testing.assert_close(at.force, -torch.autograd.grad(total, o)[0])


def test_unusual_settings_and_subclasses_are_differentiated_rather_than_guessed():
    class Mine(nn.MSELoss):
        pass

    for loss in (nn.CrossEntropyLoss(weight=torch.ones(4)), nn.CrossEntropyLoss(ignore_index=0), Mine(), custom):
        assert type(adapt(loss)) is AnyLoss


def test_cross_entropy_of_huge_outputs_stays_exact():
    o = torch.tensor([[1000.0, 0.0, -1000.0]])
    at = evaluate(nn.CrossEntropyLoss(), o, torch.tensor([2]))
    torch.testing.assert_close(at.values, torch.tensor([2000.0]))
    torch.testing.assert_close(at.force, torch.tensor([[-1.0, 0.0, 1.0]]))


def test_soft_labels_over_more_than_one_dimension_are_computed_right_or_refused():
    torch.manual_seed(0)
    o, y = torch.randn(3, 4, 5, dtype=F64), torch.rand(3, 4, 5, dtype=F64).softmax(1)
    try:
        at = evaluate(nn.CrossEntropyLoss(), o, y)
    except ValueError:
        return
    torch.testing.assert_close(at.values.sum() / 3, F.cross_entropy(o, y))


@pytest.mark.parametrize("value", [torch.zeros(3), 1.0, None], ids=["vector", "float", "none"])
def test_a_loss_that_gives_no_scalar_tensor_is_refused(value):
    with pytest.raises(ValueError, match="the loss must return a scalar tensor"):
        evaluate(lambda o, y: value, torch.randn(3, 2), torch.zeros(3, dtype=torch.int64))


def test_labels_follow_a_model_that_moves_to_another_device_or_type():
    loss, y = CrossEntropy(), torch.tensor([0, 2])
    for output in (torch.zeros(2, 3), torch.zeros(2, 3, dtype=torch.float64), torch.zeros(2, 3, device="meta")):
        loss.prepare(output, y.to(output.device))
        assert loss.rows is not None
        assert (loss.rows.device, loss.rows.dtype, len(loss.rows)) == (output.device, output.dtype, output.shape[1])
    loss.prepare(torch.zeros(2, 3), y)
    assert loss.rows.device.type == "cpu"
