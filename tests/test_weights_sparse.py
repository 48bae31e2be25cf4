"""Tables with sparse gradients: torch's own optimizers by backprop where codes do not move, no tensor of the table's
size in a step, parts of a mini-batch, states, and what is refused."""

import copy
import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import altmin
from altmin.runners.capture import check_capturable
from altmin.training import checkpoint

ROWS = 9
SGD, Adagrad, SparseAdam = torch.optim.SGD, torch.optim.Adagrad, torch.optim.SparseAdam


def net(kind: str = "rows", rows: int = ROWS, sparse: bool = True) -> nn.Sequential:
    torch.manual_seed(0)
    first = {
        "rows": lambda: (nn.Embedding(rows, 4, sparse=sparse), nn.Flatten(), nn.Tanh(), nn.Linear(12, 5)),
        "bag": lambda: (nn.EmbeddingBag(rows, 4, mode="mean", padding_idx=1, sparse=sparse), nn.Linear(4, 5)),
    }[kind]()
    return nn.Sequential(*first, nn.Tanh(), nn.Linear(5, 3)).double()


def batches(count: int = 5, rows: int = ROWS) -> list[tuple[Tensor, Tensor]]:
    """Each with integers of its own, so that rows pause."""
    torch.manual_seed(1)
    return [(torch.randint(rows, (4, 3)), torch.randint(3, (4,))) for _ in range(count)]


def trainer(model: nn.Module, rule: altmin.LocalOptimizer) -> altmin.AltMin:
    """With codes that do not move: gradients are those of backprop."""
    return altmin.AltMin(model, codes=altmin.GradientCodes(share=0.0), weights=rule)


def backprop(model: nn.Module, optimizers: list[torch.optim.Optimizer], given: list[tuple[Tensor, Tensor]]) -> None:
    for x, y in given:
        model.zero_grad()
        F.cross_entropy(model(x), y).backward()
        for optimizer in optimizers:
            optimizer.step()


def same(a: nn.Module, b: nn.Module, tolerance: float = 1e-10) -> None:
    for p, q in zip(a.parameters(), b.parameters(), strict=True):
        torch.testing.assert_close(p.detach(), q.detach(), rtol=tolerance, atol=tolerance)


def table_and_rest(model: nn.Module) -> tuple[list[Tensor], list[Tensor]]:
    first, *rest = model.parameters()
    return [first], rest


OPTIMIZERS = {
    "LocalSGD": (
        lambda: altmin.LocalSGD(0.3, momentum=0.0),
        lambda model: [SGD(model.parameters(), 0.3)],
    ),
    "LocalSGD with momentum": (
        lambda: altmin.LocalSGD(0.3, momentum=0.9),
        lambda model: [SGD(model.parameters(), 0.3, momentum=0.9)],
    ),
    "Adagrad": (
        lambda: altmin.LocalOptimizer(Adagrad, 0.1),
        lambda model: [Adagrad(model.parameters(), 0.1)],
    ),
    "LocalAdam": (
        lambda: altmin.LocalAdam(0.05, betas=(0.8, 0.95), eps=1e-6),
        lambda model: [
            SparseAdam(table_and_rest(model)[0], 0.05, (0.8, 0.95), 1e-6),
            torch.optim.Adam(table_and_rest(model)[1], 0.05, (0.8, 0.95), 1e-6),
        ],
    ),
}


@pytest.mark.parametrize("kind", ["rows", "bag"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_is_that_of_torchs_own_optimizers_where_codes_do_not_move(kind, name):
    rule, optimizers = OPTIMIZERS[name]
    model, given = net(kind), batches()
    twin = copy.deepcopy(model)
    am = trainer(model, rule())
    for x, y in given:
        am.step(x, y)
        assert model[0].weight.grad.is_sparse
    backprop(twin, optimizers(twin), given)
    same(model, twin)


def test_sparse_adam_itself_trains_a_model_of_tables_alone():
    torch.manual_seed(0)
    model = nn.Sequential(nn.EmbeddingBag(ROWS, 3, sparse=True)).double()
    twin = copy.deepcopy(model)
    am = altmin.AltMin(model, weights=altmin.LocalOptimizer(SparseAdam, 0.1))
    for x, y in batches():
        am.step(x, y)
    backprop(twin, [SparseAdam(twin.parameters(), 0.1)], batches())
    same(model, twin)


@pytest.mark.parametrize("share", [0.0, 0.5])
@pytest.mark.parametrize("options", [{}, {"clip_norm": 0.02}, {"steps": 3}], ids=["plain", "clipped", "inner steps"])
def test_a_sparse_table_takes_the_steps_of_a_dense_one(share, options):
    """With plain SGD rows without a gradient stay in both."""
    models = net(sparse=True), net(sparse=False)
    for model in models:
        rule = altmin.LocalSGD(0.3, momentum=0.0, **options)
        am = altmin.AltMin(model, codes=altmin.GradientCodes(share=share), weights=rule)
        for x, y in batches():
            am.step(x, y)
    same(*models)


@pytest.mark.parametrize("rule", [lambda: altmin.LocalSGD(0.3), lambda: altmin.LocalAdam(0.05)], ids=["sgd", "adam"])
def test_parts_of_a_mini_batch_are_one_step(rule):
    whole, parts = net(), net()
    first, second = trainer(whole, rule()), trainer(parts, rule())
    for x, y in batches():
        first.step(x, y)
        second.gather(x[:3], y[:3])
        second.gather(x[3:], y[3:])
        second.apply()
    same(whole, parts)


def test_a_table_within_a_module_without_closed_form_is_trained_alike():
    class Doubled(nn.Module):
        def __init__(self, rows: nn.Module):
            super().__init__()
            self.rows = rows

        def forward(self, x: Tensor) -> Tensor:
            return 2 * self.rows(x)

    model = net()
    model[0] = Doubled(model[0])
    twin = copy.deepcopy(model)
    am = trainer(model, altmin.LocalAdam(0.05))
    for x, y in batches():
        am.step(x, y)
    table, rest = table_and_rest(twin)
    backprop(twin, [SparseAdam(table, 0.05), torch.optim.Adam(rest, 0.05)], batches())
    same(model, twin)


# -- memory -----------------------------------------------------------------------------------------------------------


class Largest(TorchDispatchMode):
    """The most entries of any tensor that an operation has made; `known` are not counted."""

    def __init__(self, known: list[Tensor]):
        super().__init__()
        self.known, self.entries = {t.data_ptr() for t in known}, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        for t in found if isinstance(found, tuple | list) else [found]:
            values = t._values() if isinstance(t, Tensor) and t.is_sparse else t
            if isinstance(values, Tensor) and values.layout == torch.strided and values.data_ptr() not in self.known:
                self.entries = max(self.entries, values.untyped_storage().nbytes() // values.element_size())
        return found


@pytest.mark.parametrize("kind", ["rows", "bag"])
@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("rule", [altmin.LocalAdam, altmin.LocalSGD, partial(altmin.LocalAdam, clip_norm=0.1)])
def test_no_tensor_of_the_tables_size_is_made_in_a_step_if_it_is_sparse(kind, sparse, rule):
    rows = 50_000
    model = net(kind, rows, sparse)
    am = altmin.AltMin(model, weights=rule(lr=0.1))
    (x, y), *rest = batches(4, rows)
    am.step(x, y)  # makes the moments
    known = [
        *model.parameters(),
        *(t for s in am.optimizer.state.values() for t in s.values() if isinstance(t, Tensor)),
    ]
    with Largest([t for t in known if not t.is_sparse]) as watch:
        for x, y in rest:
            am.step(x, y)
            am.gather(x, y)
            am.apply()
    assert (watch.entries < 500) == sparse


def test_a_frozen_table_needs_no_gradient_of_its_size():
    rows = 50_000
    model = net("rows", rows, sparse=False)
    model[0].weight.requires_grad_(False)
    am = altmin.AltMin(model)
    with Largest(list(model.parameters())) as watch:
        for x, y in batches(3, rows):
            am.step(x, y)
    assert watch.entries < 500


# -- states -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_run_goes_on_from_its_file_in_the_midst_of_a_mini_batch(name, tmp_path):
    rule, _ = OPTIMIZERS[name]
    model, given = net(), batches()
    am = trainer(model, rule())
    for x, y in given[:3]:
        am.step(x, y)
    am.gather(*given[3])
    checkpoint.save(tmp_path / "run", {"model": model.state_dict(), "method": am.state_dict()})
    twin = net()
    other = trainer(twin, rule())
    state = checkpoint.load(tmp_path / "run")
    twin.load_state_dict(state["model"])
    other.load_state_dict(state["method"])
    for trained in (am, other):
        trained.gather(*given[4])
        trained.apply()
        trained.step(*given[0])
    same(model, twin, 0.0)


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rule, sentence",
    [
        (lambda: altmin.LocalOptimizer(SparseAdam, 0.1), "SparseAdam takes sparse gradients alone.*altmin.LocalAdam"),
        (
            lambda: altmin.LocalOptimizer(torch.optim.AdamW, 0.1),
            "AdamW does not take .* sparse=True; use altmin.LocalA",
        ),
        (lambda: altmin.LocalOptimizer(torch.optim.RMSprop, 0.1), "RMSprop does not take .* with sparse=False"),
        (
            lambda: altmin.LocalAdam(0.1, weight_decay=0.1),
            "weight_decay of LocalAdam shrinks every row.*weight_decay=0",
        ),
        (lambda: altmin.LocalSGD(0.1, weight_decay=0.1), "weight_decay of LocalSGD shrinks every row"),
        (lambda: altmin.LocalSGD(0.1, l1=0.1), "l1 of LocalSGD shrinks every row of a table.*give l1=0"),
    ],
)
def test_rules_that_cannot_follow_sparse_gradients_are_refused_at_once(rule, sentence):
    with pytest.raises(ValueError, match=sentence):
        altmin.AltMin(net(), weights=rule())
    frozen = net()
    frozen[0].weight.requires_grad_(False)
    if "alone" not in sentence:
        altmin.AltMin(frozen, weights=rule()).step(*batches()[0])


def test_rows_that_would_leave_the_finite_numbers_stay():
    """The step of the table alone is too long."""
    model = net("bag")
    before = copy.deepcopy(model.state_dict())
    am, (x, y) = trainer(model, altmin.LocalSGD([1e160, 0.1, 0.1])), batches()[0]
    with pytest.raises(altmin.Diverged, match="the weights' next value"):
        am.step(x, y)
    am.gather(x, y)
    with pytest.raises(altmin.Diverged, match="the weights' next value"):
        am.apply()
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def test_a_part_of_a_mini_batch_whose_rows_are_not_finite_is_not_gathered():
    am = trainer(net(), altmin.LocalSGD(0.3))
    grads = [[torch.full_like(p, math.inf).to_sparse(1) if p.shape == (ROWS, 4) else p for p in l] for l in am.theta]
    with pytest.raises(altmin.Diverged, match="the contribution of block 0"):
        am.updates.gather(grads, 4)
    assert not am.updates.gathered


@pytest.mark.parametrize("method", ["am-adam", "am-sgd", "adam"])
def test_ensembles_and_captured_steps_refuse_a_sparse_table_with_the_reason(method):
    made = [altmin.methods.create(method, net()) for _ in range(2)]
    with pytest.raises(ValueError, match=r"member 0 cannot be in an Ensemble: .* sparse; make it with sparse=False"):
        altmin.Ensemble(made)
    with pytest.raises(ValueError, match=r"cannot be captured: .* make the table with sparse=False"):
        check_capturable(made[0])
