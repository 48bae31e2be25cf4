"""Every loss comes with the value, gradient and Hessian of the mean over the batch, held against autograd."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import vmap
from torch.nn import functional as F

import altmin
from altmin import methods
from altmin.core.losses import AnyLoss, CrossEntropy, Evaluation, SquaredError, adapt

F64 = torch.float64
close = torch.testing.assert_close


def evaluate(loss, o: Tensor, y: Tensor, functional: bool = False) -> Evaluation:
    """The loss at one output, as the code update sees it; functional: that of an ensemble or a recorded step."""
    adapted = adapt(loss).functional() if functional else adapt(loss)
    return adapted.at(o, adapted.prepare(o, y))


def custom(output: Tensor, y: Tensor) -> Tensor:
    return F.softplus(-output.gather(1, y.unsqueeze(1))).mean()


LABELS = {
    "cross-entropy": nn.CrossEntropyLoss(),
    "smoothed": nn.CrossEntropyLoss(label_smoothing=0.3),
    "weighted": nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 0.5, 1.0], dtype=F64)),
    "ignoring a class": nn.CrossEntropyLoss(ignore_index=2),
    "summed": nn.CrossEntropyLoss(reduction="sum"),
    "custom": custom,
}
TARGETS = {
    "squared": nn.MSELoss(),
    "summed squares": nn.MSELoss(reduction="sum"),
    "L1": nn.L1Loss(),
    "Huber": nn.HuberLoss(),
    "linear": lambda o, y: (o * y).mean(),
    "soft labels": nn.CrossEntropyLoss(),
    "smoothed soft labels": nn.CrossEntropyLoss(label_smoothing=0.1),
}
KINDS = {
    **dict.fromkeys(
        ("cross-entropy", "smoothed", "ignoring a class", "soft labels", "smoothed soft labels"), CrossEntropy
    ),
    "squared": SquaredError,
}
EVERY_LOSS = pytest.mark.parametrize("name", [*LABELS, *TARGETS])


def problem(name: str, seed: int = 0, n: int = 6) -> tuple[nn.Module, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    o = 2 * torch.randn(n, 4, generator=generator, dtype=F64)
    if name in LABELS:
        return LABELS[name], o, torch.randint(4, (n,), generator=generator)
    y = torch.randn(n, 4, generator=generator, dtype=F64)
    return TARGETS[name], o, y.softmax(1) if "soft" in name else y


@EVERY_LOSS
@given(seed=st.integers(0, 10**6))
@settings(max_examples=5)
def test_value_gradient_and_hessian_are_those_of_autograd(name, seed):
    loss, o, y = problem(name, seed)
    at = evaluate(loss, o, y)
    leaf = o.clone().requires_grad_()
    value = loss(leaf, y)
    close(at.value, value.detach())
    close(at.delta, torch.autograd.grad(value, leaf)[0])
    q = torch.randn_like(o)
    H = torch.autograd.functional.hessian(lambda o: loss(o, y), o).reshape(o.numel(), o.numel())
    close(at.hessian(q), (H @ q.flatten()).view_as(q))
    close(at.hessian(2 * q), 2 * at.hessian(q))
    assert not any(t.requires_grad for t in (at.value, at.delta, at.hessian(q)))


@EVERY_LOSS
def test_a_loss_has_the_closed_form_that_it_has(name):
    assert type(adapt(problem(name)[0])) is KINDS.get(name, AnyLoss)


@EVERY_LOSS
def test_an_adapted_loss_is_called_as_the_users_own(name):
    loss, o, y = problem(name)
    close(adapt(loss)(o, y), loss(o, y))


@EVERY_LOSS
def test_inside_vmap_a_loss_is_the_same(name):
    loss, o, y = problem(name)
    other, targets = problem(name, seed=1)[1:]

    def all_of(o: Tensor, y: Tensor, q: Tensor, functional: bool = True) -> tuple[Tensor, Tensor, Tensor]:
        value, delta, hessian = evaluate(loss, o, y, functional)
        return value, delta, hessian(q)

    outputs, labels, q = torch.stack([o, other]), torch.stack([y, targets]), torch.randn(2, *o.shape, dtype=F64)
    together = vmap(all_of)(outputs, labels, q)
    for i in range(2):
        for found, wanted in zip(together, all_of(outputs[i], labels[i], q[i], False), strict=True):
            close(found[i], wanted)


@pytest.mark.parametrize("name, samples", [("cross-entropy", 6), ("squared", 6), ("L1", 6), ("summed", 1)])
def test_the_mean_times_its_samples_is_a_sum_and_a_sum_is_one_already(name, samples):
    loss, o, _ = problem(name)
    assert adapt(loss).samples(o) == samples


def test_images_of_squared_errors_are_averaged_over_all_outputs():
    torch.manual_seed(0)
    o, y = torch.randn(2, 3, 2, 5, dtype=F64)
    at = evaluate(nn.MSELoss(), o, y)
    close(at.value, F.mse_loss(o, y))
    close(at.delta, 2 * (o - y) / 30)
    close(at.hessian(y), 2 * y / 30)


def test_subclasses_are_differentiated_rather_than_guessed():
    class Mine(nn.MSELoss):
        def forward(self, o: Tensor, y: Tensor) -> Tensor:
            return 3 * super().forward(o, y)

    o, y = torch.randn(2, 3, 4)
    assert type(adapt(Mine())) is AnyLoss
    close(evaluate(Mine(), o, y).value, 3 * F.mse_loss(o, y))


def test_cross_entropy_of_huge_outputs_stays_exact():
    o = torch.tensor([[1000.0, 0.0, -1000.0]])
    at = evaluate(nn.CrossEntropyLoss(), o, torch.tensor([2]))
    close(at.value, torch.tensor(2000.0))
    close(at.delta, torch.tensor([[1.0, 0.0, -1.0]]))


@pytest.mark.parametrize(
    "o, y",
    [
        (torch.zeros(3, 4, 5), torch.zeros(3).long()),
        (torch.zeros(3, 4, 5), torch.zeros(2, 4).long()),
        (torch.zeros(3, 4, 5), torch.zeros(3, 4)),
        (torch.zeros(3, 4, 4), torch.zeros(3, 4).long()),
        (torch.zeros(3, 4, 5), torch.full((3, 4), 5)),
        (torch.zeros(3, 2000), torch.tensor([0, 1, 2000])),
        (torch.zeros(3, 4), torch.zeros(3)),
        (torch.zeros(3, 4), torch.zeros(3).int()),
        (torch.zeros(3, 4), torch.eye(4)[:3].long()),
        (torch.zeros(3, 4), torch.eye(4)[:3].double()),
        (torch.zeros(3, 5, 4), torch.zeros(3, 5, 4)),
        (torch.zeros(3, 4), torch.zeros(2).long()),
        (torch.zeros(3, 4), torch.tensor([0, 4, 1])),
        (torch.zeros(3, 4), torch.tensor([0, 1, -1])),
        (torch.zeros(3, 4), torch.full((3,), -100)),
    ],
)
def test_targets_that_do_not_fit_a_cross_entropy_are_refused(o, y):
    with pytest.raises(ValueError):
        adapt(nn.CrossEntropyLoss())(o, y)


def test_a_label_out_of_range_that_nobody_may_read_becomes_nan():
    o, y = torch.zeros(3, 4), torch.tensor([0, 4, -1])
    rows = CrossEntropy().functional().prepare(o, y).rows
    close(rows[0], torch.tensor([1 / 3, 0.0, 0.0, 0.0]))
    assert rows[1:].isnan().all()


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("functional", [False, True])
def test_labels_of_minus_100_count_for_nothing_as_in_torch(smoothing, functional):
    torch.manual_seed(0)
    o, y, q = torch.randn(6, 4, dtype=F64), torch.tensor([0, -100, 3, 1, -100, 2]), torch.randn(6, 4, dtype=F64)
    theirs = nn.CrossEntropyLoss(label_smoothing=smoothing)
    value, delta, hessian = evaluate(theirs, o, y, functional)
    ours = value, delta, hessian(q)
    close(ours, autograd_of(theirs, o, y, q))


def test_weights_of_classes_need_not_sum_to_one():
    torch.manual_seed(0)
    o, y, q = (torch.rand(5, 3, dtype=F64) for _ in range(3))
    for theirs in (nn.CrossEntropyLoss(), nn.CrossEntropyLoss(label_smoothing=0.3)):
        value, delta, hessian = evaluate(theirs, o, y)
        close((value, delta, hessian(q)), autograd_of(theirs, o, y, q))


def autograd_of(loss, o, y, q):
    """A loss, its gradient and the product of its Hessian with q."""
    gradient = torch.func.grad(lambda o: loss(o, y))
    return loss(o, y), gradient(o), torch.func.jvp(gradient, (o,), (q,))[1]


@pytest.mark.parametrize("y", [torch.zeros(3, 1), torch.zeros(2)])
def test_squared_errors_compare_like_with_like(y):
    with pytest.raises(ValueError):
        adapt(nn.MSELoss())(torch.zeros(3, 2), y)


def test_labels_follow_a_model_of_another_type_or_another_number_of_classes():
    loss, y = CrossEntropy(0.2), torch.tensor([0, 2])
    for dtype in (torch.float32, torch.float64, torch.float32):
        prepared = loss.prepare(torch.zeros(2, 3, dtype=dtype), y)
        rows = [[0.8 + 0.2 / 3, 0.2 / 3, 0.2 / 3], [0.2 / 3, 0.2 / 3, 0.8 + 0.2 / 3]]
        close(2 * prepared.rows, torch.tensor(rows, dtype=dtype))
    close(loss.prepare(torch.zeros(2, 4), y).rows.sum(1), torch.full((2,), 0.5))


def test_a_loss_that_can_be_differentiated_once_only_has_no_curvature():
    class Once(torch.autograd.Function):
        @staticmethod
        def forward(ctx, o):
            ctx.save_for_backward(o)
            return o.square().mean()

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, g):
            return g * 2 * ctx.saved_tensors[0] / ctx.saved_tensors[0].numel()

    o, q = torch.randn(3, 2), torch.randn(3, 2)
    value, delta, hessian = evaluate(lambda o, y: Once.apply(o), o, torch.zeros(3))
    close((value, delta), (o.square().mean(), o / 3))
    assert not hessian(q).any()


SEQUENCES = {
    "mean": nn.CrossEntropyLoss(),
    "smoothed": nn.CrossEntropyLoss(label_smoothing=0.3),
    "ignoring padding": nn.CrossEntropyLoss(ignore_index=-1),
    "smoothed, ignoring a class": nn.CrossEntropyLoss(label_smoothing=0.2, ignore_index=2),
    "summed": nn.CrossEntropyLoss(reduction="sum", ignore_index=-1),
    "weighted": nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 0.5, 1.0], dtype=F64), ignore_index=-1),
}


def sequences(name: str) -> tuple[nn.CrossEntropyLoss, Tensor, Tensor, Tensor]:
    """A loss, outputs of 3 sequences of 5 places and 4 classes, labels, and a direction."""
    torch.manual_seed(0)
    loss, y = SEQUENCES[name], torch.randint(4, (3, 5))
    if loss.ignore_index == -1:
        y[0, 3:] = y[2, 1] = -1
    return loss, 2 * torch.randn(3, 5, 4, dtype=F64), y, torch.randn(3, 5, 4, dtype=F64)


def rows_only(loss: nn.CrossEntropyLoss, y: Tensor):
    """What the loss is by definition: torch's over all places as if each were a sample."""
    return lambda o: F.cross_entropy(
        torch.stack([o[i, t] for i in range(3) for t in range(5)]),
        torch.stack([y[i, t] for i in range(3) for t in range(5)]),
        loss.weight,
        ignore_index=loss.ignore_index,
        reduction=loss.reduction,
        label_smoothing=loss.label_smoothing,
    )


@pytest.mark.parametrize("functional", [False, True])
@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize("name", SEQUENCES)
def test_a_label_at_every_place_of_a_sequence_is_that_of_a_sample(name, second, functional):
    """Classes last, as transformers give them, or second, as in torch."""
    loss, o, y, q = sequences(name)
    function = rows_only(loss, y)
    gradient = torch.func.grad(function)
    expected = function(o), gradient(o), torch.func.jvp(gradient, (o,), (q,))[1]
    turn = (lambda t: t.transpose(1, 2)) if second else (lambda t: t)
    value, delta, hessian = evaluate(loss, turn(o), y, functional)
    ours = value, turn(delta), turn(hessian(turn(q)))
    close(ours, expected)
    close(adapt(loss)(turn(o), y), expected[0])


@pytest.mark.parametrize("functional", [False, True])
def test_a_large_vocabulary_has_the_same_rows_inside_vmap(functional):
    torch.manual_seed(0)
    theirs, y = nn.CrossEntropyLoss(label_smoothing=0.1), torch.tensor([0, 2999, -100, 5])
    o, q = torch.randn(4, 3000, dtype=F64), torch.randn(4, 3000, dtype=F64)
    value, delta, hessian = evaluate(theirs, o, y, functional)
    ours = value, delta, hessian(q)
    close(ours, autograd_of(theirs, o, y, q))
    loss = CrossEntropy(0.1)
    both = torch.stack([y, y.flip(0)])
    rows, mass = vmap(lambda y: loss.functional().prepare(o, y)[:2])(both)
    for i in range(2):
        alone = loss.prepare(o, both[i])
        close((rows[i], mass[i]), (alone.rows, alone.mass))


def test_images_have_their_classes_where_torch_has_them():
    torch.manual_seed(0)
    o, y, q = torch.randn(2, 4, 3, 5, dtype=F64), torch.randint(4, (2, 3, 5)), torch.randn(2, 4, 3, 5, dtype=F64)
    value, delta, hessian = evaluate(nn.CrossEntropyLoss(), o, y)
    close((value, delta, hessian(q)), autograd_of(nn.CrossEntropyLoss(), o, y, q))


@pytest.mark.parametrize("loss", [nn.MSELoss(), nn.L1Loss(), nn.SmoothL1Loss(), nn.HuberLoss(), nn.PoissonNLLLoss()])
@pytest.mark.parametrize("method", ["adam", "am-adam"])
def test_targets_that_torch_would_broadcast_are_refused(loss, method):
    """Or each output would be compared with the targets of all samples."""
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    before = [p.detach().clone() for p in model.parameters()]
    made = methods.create(method, model, loss=loss)
    with pytest.raises(ValueError):
        made.step(torch.zeros(8, 3), torch.ones(8))
    for p, old in zip(model.parameters(), before, strict=True):
        torch.testing.assert_close(p, old)
    made.step(torch.zeros(8, 3), torch.ones(8, 1))


@pytest.mark.parametrize("method", ["am-adam", "adam"])
def test_options_of_a_recorded_loss_may_not_change(method):
    loss, batch = nn.CrossEntropyLoss(), (torch.randn(6, 5), torch.arange(6) % 3)
    recorded = altmin.Recorded(altmin.methods.create(method, nn.Sequential(nn.Linear(5, 3)), loss=loss), fuse=False)
    recorded.step(*batch)
    loss.label_smoothing = 0.5
    with pytest.raises(ValueError, match="part of the recording"):
        recorded.step(*batch)


def test_truth_values_are_targets_of_squared_errors_as_in_torch() -> None:
    o, y = torch.randn(3, 2, dtype=torch.float64, requires_grad=True), torch.eye(3, 2) > 0
    F.mse_loss(o, y).backward()
    torch.testing.assert_close(SquaredError().at(o.detach(), y).delta, o.grad)
