"""`CoActivation` where an optimizer is expected: groups, checkpointed and compiled models, sharding, trainers."""

import copy
import warnings

import pytest
import torch
import torch.multiprocessing as mp
from graph_cases import F64
from test_optim import OPTIONS, _saved_and_left, adam_alone, batches, same, stepped
from test_weights_memory import plain
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import altmin
from altmin.optim import CoActivation

OTHERS = {name: value for name, value in OPTIONS.items() if name != "lr"}


def test_each_group_has_its_rate_and_decay():
    """A layer's direction depends on no other layer's rate: after one step every group is where it would be alone."""
    torch.manual_seed(0)
    start, (x, y) = plain().double(), batches(1)[0]
    settings, found = [(0.1, 0.0), (0.02, 0.3)], []
    for lr, decay in settings:
        model = copy.deepcopy(start)
        stepped(model, CoActivation(model, **{**OPTIONS, "lr": lr, "weight_decay": decay}), x, y)
        found.append(list(model.parameters()))
    model = copy.deepcopy(start)
    parameters = list(model.parameters())
    groups = [
        {"params": part, "lr": lr, "weight_decay": decay}
        for part, (lr, decay) in zip((parameters[:2], parameters[2:]), settings, strict=True)
    ]
    stepped(model, CoActivation(groups, model=model, **OTHERS), x, y)
    torch.testing.assert_close(parameters, found[0][:2] + found[1][2:])


def test_parameters_with_their_model_are_the_model():
    torch.manual_seed(0)
    model = plain().double()
    others = [copy.deepcopy(model) for _ in range(2)]
    optimizers = [
        CoActivation(model, **OPTIONS),
        CoActivation(others[0].parameters(), model=others[0], **OPTIONS),
        CoActivation(others[1].named_parameters(), model=others[1], **OPTIONS),
    ]
    for x, y in batches(9):
        for each, optimizer in zip([model, *others], optimizers, strict=True):
            stepped(each, optimizer, x, y)
    for other in others:
        same(model, other, rtol=0, atol=0)


def test_a_layer_that_is_added_later_gets_a_memory():
    torch.manual_seed(0)
    model = plain().double()
    optimizer, (x, y) = CoActivation(model, **OPTIONS), batches(1)[0]
    stepped(model, optimizer, x, y)
    model.append(nn.Linear(3, 3).double())
    optimizer.add_param_group({"params": list(model[-1].parameters()), "lr": 0.01})
    stepped(model, optimizer, x, y)
    assert adam_alone(model, optimizer) == [False] * 4


class Checkpointed(nn.Sequential):
    """Calls each layer a second time during the backward pass."""

    reentrant = False

    def forward(self, x: Tensor) -> Tensor:
        x = x.requires_grad_() if self.reentrant else x
        for layer in self:
            x = checkpoint(layer, x, use_reentrant=self.reentrant)
        return x


@pytest.mark.parametrize("reentrant", [False, True])
def test_inputs_of_checkpointed_layers_count_once(reentrant):
    torch.manual_seed(0)
    model = plain().double()
    other = Checkpointed(*copy.deepcopy(model))
    other.reentrant = reentrant
    first, second = CoActivation(model, **OPTIONS), CoActivation(other, **OPTIONS)
    for x, y in batches(4):
        stepped(model, first, x, y)
        stepped(other, second, x, y)
    same(model, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_compiled_model_takes_the_same_steps(backend):
    torch.manual_seed(0)
    model = plain().double()
    other = copy.deepcopy(model)
    first, second = CoActivation(model, **OPTIONS), CoActivation(other, **OPTIONS)
    compiled = torch.compile(other, backend=backend)
    for x, y in batches(12):
        stepped(model, first, x, y)
        stepped(compiled, second, x, y)
    same(model, other, rtol=1e-10, atol=1e-10)


def test_a_model_whose_layers_are_not_seen_is_said_once():
    class Hidden(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            return F.linear(x, self.layer.weight, self.layer.bias)

    model = Hidden().double()
    optimizer, (x, y) = CoActivation(model), batches(1)[0]
    with pytest.warns(UserWarning, match="has seen no inputs"):
        stepped(model, optimizer, x, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stepped(model, optimizer, x, y)


def test_another_model_than_that_of_the_optimizer_is_said():
    first, second = (nn.Linear(3, 2) for _ in range(2))
    optimizer = CoActivation(first)
    first(torch.randn(5, 3)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    optimizer.param_groups[0]["params"] = list(second.parameters())  # as a loop of tasks does
    second(torch.randn(5, 3)).square().mean().backward()
    with pytest.warns(UserWarning, match="another model is trained"):
        optimizer.step()


def _sharded_rank(rank: int, path: str) -> None:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{path}/store", rank=rank, world_size=2)
    torch.manual_seed(0)
    model = plain().double()
    parallel = nn.parallel.DistributedDataParallel(model)
    optimizer = ZeroRedundancyOptimizer(parallel.parameters(), CoActivation, model=parallel, **OPTIONS)
    for x, y in batches(9):
        stepped(parallel, optimizer, x[rank::2], y[rank::2])
    with_state = sum("exp_avg" in state for state in optimizer.optim.state.values())
    _saved_and_left([model.state_dict(), with_state], f"{path}/{rank}.pt")


def test_state_sharded_over_ranks_takes_the_steps_of_one_process(tmp_path):
    mp.spawn(_sharded_rank, (str(tmp_path),), nprocs=2)
    torch.manual_seed(0)
    model = plain().double()
    optimizer = CoActivation(model, **OPTIONS)
    for batch in batches(9):
        stepped(model, optimizer, *batch)
    counts = []
    for rank in (0, 1):
        state, count = torch.load(tmp_path / f"{rank}.pt")
        torch.testing.assert_close(state, model.state_dict(), rtol=1e-8, atol=1e-10)
        counts.append(count)
    assert sum(counts) == len(list(model.parameters()))
    assert all(counts)


def test_parts_of_matrices_are_refused(tmp_path):
    from torch.distributed.fsdp import fully_shard

    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        model = plain()
        fully_shard(model, mesh=torch.distributed.init_device_mesh("cpu", (1,)))
        with pytest.raises(ValueError, match="whole matrices"):
            CoActivation(model)
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize(
    "make, said",
    [
        (lambda: CoActivation(plain().parameters()), "given generator alone"),
        (lambda: CoActivation(plain().parameters(), model="net"), "generator and model=str"),
        (lambda: CoActivation(plain().parameters(), model=plain()), "none belongs to its model"),
        (lambda: CoActivation(plain().to(torch.complex64)), "real parameters"),
    ],
)
def test_parameters_that_it_cannot_train_are_refused(make, said):
    with pytest.raises((TypeError, ValueError), match=said):
        make()


def test_lightning_accumulates_and_schedules_as_a_loop_of_ones_own():
    pl = pytest.importorskip("lightning.pytorch")

    class Module(pl.LightningModule):
        def __init__(self, net: nn.Module):
            super().__init__()
            self.net = net

        def training_step(self, batch: list[Tensor]) -> Tensor:
            return F.cross_entropy(self.net(batch[0]), batch[1])

        def configure_optimizers(self) -> object:
            optimizer = CoActivation(self.parameters(), model=self, **OPTIONS)
            halved = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
            return [optimizer], [{"scheduler": halved, "interval": "epoch"}]

    torch.manual_seed(0)
    model = plain().double()
    module, data = Module(copy.deepcopy(model)), batches(4)
    trainer = pl.Trainer(
        max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        accumulate_grad_batches=2, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(module, torch.utils.data.DataLoader(data, batch_size=None))
    optimizer = CoActivation(model, **OPTIONS)
    for epoch in range(2):
        optimizer.param_groups[0]["lr"] = OPTIONS["lr"] * 0.5**epoch
        for one, other in (data[:2], data[2:]):
            optimizer.zero_grad()
            for x, y in (one, other):
                (F.cross_entropy(model(x), y) / 2).backward()
            optimizer.step()
    assert module.net[0].weight.dtype == F64
    same(model, module.net, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("bidirectional", [True, False])
def test_recurrent_layers_remember_inputs_and_states_of_all_steps(kind, batch_first, bidirectional):
    """Y = (1 - forget) mean a a^T after the first step; S is the identity. A matrix moves as far as by Adam's first
    step, lr for every entry."""
    torch.manual_seed(0)
    rnn = kind(3, 5, batch_first=batch_first, bidirectional=bidirectional).double()
    x = torch.randn(4, 7, 3, dtype=F64)
    optimizer = CoActivation(rnn, lr=0.01, rank=9, rows=10_000)
    before = copy.deepcopy(rnn.state_dict())
    h = rnn(x if batch_first else x.transpose(0, 1))[0]
    h.square().sum().backward()
    optimizer.step()
    h = (h if batch_first else h.transpose(0, 1)).detach()
    inputs = {"weight_ih_l0": x, "weight_hh_l0": h[:, :-1, :5]}
    if bidirectional:
        inputs |= {"weight_ih_l0_reverse": x, "weight_hh_l0_reverse": h[:, 1:, 5:]}
    for name, a in inputs.items():
        W, rows = getattr(rnn, name), a.reshape(-1, a.shape[-1])
        torch.testing.assert_close(optimizer.state[W]["Y"], 0.4 * rows.mT @ rows / len(rows))
        length = torch.linalg.vector_norm(W.detach() - before[name])
        torch.testing.assert_close(length, torch.tensor(0.01 * W.numel() ** 0.5, dtype=F64), rtol=1e-5, atol=0.0)


def test_parts_of_unequal_size_and_passes_of_other_outputs():
    """Inputs count by their samples, and only those of passes that leave a gradient in the weight."""
    torch.manual_seed(0)
    model = plain().double()
    other = copy.deepcopy(model)
    whole, parts = CoActivation(model, **OPTIONS), CoActivation(other, **OPTIONS)
    for x, y in batches(5):
        stepped(model, whole, x, y)
        parts.zero_grad()
        for rows in torch.arange(8).split([5, 3]):
            (F.cross_entropy(other(x[rows]), y[rows]) * len(rows) / 8).backward()
        torch.autograd.grad(other(100 * x).sum(), list(other.parameters()))
        parts.step()
    same(model, other, rtol=1e-9, atol=1e-11)


def test_optimizers_in_turn_leave_no_hooks():
    model, (x, y) = plain().double(), batches(1)[0]
    for _ in range(5):
        stepped(model, CoActivation(model), x, y)
    assert not any(m._forward_hooks for m in model.modules())
    assert not any(p._post_accumulate_grad_hooks for p in model.parameters())


def test_inputs_whose_squares_overflow_leave_the_memory_as_it_was():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(6, 3)), torch.randn(8, 6)
    optimizer = CoActivation(model)
    model(x).square().mean().backward()
    optimizer.step()
    before = optimizer.state[model[0].weight]["Y"].clone()
    optimizer.zero_grad()
    (1e-25 * model(1e19 * x)).sum().backward()
    optimizer.step()
    assert torch.equal(optimizer.state[model[0].weight]["Y"], before)
    assert all(p.isfinite().all() for p in model.parameters())


def test_the_elman_net_has_memories_of_inputs_and_states():
    torch.manual_seed(0)
    net, x = altmin.models.elman(5, length=7, inputs=3, outputs=2).double(), torch.randn(4, 7, 3, dtype=F64)
    optimizer, h = CoActivation(net, rank=9, rows=10_000), net[0](x).detach()
    F.cross_entropy(net(x), torch.tensor([0, 1, 1, 0])).backward()
    optimizer.step()
    for W, a in ((net[0].weight_ih_l0, x), (net[0].weight_hh_l0, h[:, :-1])):
        rows = a.reshape(-1, a.shape[-1])
        torch.testing.assert_close(optimizer.state[W]["Y"], 0.4 * rows.mT @ rows / len(rows))


def test_groups_without_parameters_and_other_default_types_are_no_matter():
    torch.manual_seed(0)
    model = plain()
    other, x = copy.deepcopy(model), torch.randn(8, 6)
    optimizers = CoActivation(model), CoActivation([{"params": []}, {"params": other.parameters()}], model=other)
    torch.set_default_dtype(F64)
    try:
        for each, optimizer in zip((model, other), optimizers, strict=True):
            each(x).square().mean().backward()
            optimizer.step()
    finally:
        torch.set_default_dtype(torch.float32)
    same(model, other, rtol=0, atol=0)


def test_the_elman_layer_may_be_called_by_keyword():
    layer, x = altmin.layers.Recurrent(3, 4), torch.randn(2, 5, 3)
    optimizer = CoActivation(layer)
    layer(x=x).square().mean().backward()
    optimizer.step()
    assert "Y" in optimizer.state[layer.weight_ih_l0]
