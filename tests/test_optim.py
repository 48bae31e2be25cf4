"""`altmin.optim.CoActivation`: the memory on the gradients of backpropagation."""

import copy
import os
import pickle

import pytest
import torch
import torch.multiprocessing as mp
from graph_cases import F64
from test_weights_memory import Branches, groups, images, plain
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import prune

import altmin
from altmin.optim import CoActivation

OPTIONS = {"lr": 0.05, "beta": 0.8, "forget": 0.7, "damping": 0.3, "rank": 4, "weight_decay": 0.1}


def batches(count: int, n: int = 8) -> list[tuple[Tensor, Tensor]]:
    torch.manual_seed(1)
    return [(torch.randn(n, 6, dtype=F64), torch.randint(3, (n,))) for _ in range(count)]


def stepped(model: nn.Module, optimizer: CoActivation, *batch: Tensor) -> float:
    optimizer.zero_grad()
    loss = F.cross_entropy(model(batch[0]), batch[1])
    loss.backward()
    optimizer.step()
    return float(loss.detach())


def same(one: nn.Module, other: nn.Module, **tolerance: float) -> None:
    torch.testing.assert_close(one.state_dict(), other.state_dict(), **tolerance)


@pytest.mark.parametrize("make", [plain, images, Branches, groups])
@pytest.mark.parametrize("decay_biases", [True, False])
def test_it_is_the_rule_at_share_0(make, decay_biases):
    torch.manual_seed(0)
    model = make().double()
    other, options = copy.deepcopy(model), OPTIONS | {"decay_biases": decay_biases}
    optimizer = CoActivation(model, **options)
    rule = altmin.CoActivationMemory(**options)
    am = altmin.AltMin(other, codes=altmin.GradientCodes(share=0.0), weights=rule)
    for batch in batches(24):
        stepped(model, optimizer, *batch)
        am.step(*batch)
    same(model, other, rtol=1e-9, atol=1e-11)


def test_parts_of_a_mini_batch_are_one_step():
    torch.manual_seed(0)
    model = plain().double()
    other = copy.deepcopy(model)
    whole, parts = CoActivation(model, **OPTIONS), CoActivation(other, **OPTIONS)
    for x, y in batches(3):
        stepped(model, whole, x, y)
        parts.zero_grad()
        for rows in torch.arange(8).split(4):
            (F.cross_entropy(other(x[rows]), y[rows]) / 2).backward()
        parts.step()
    same(model, other, rtol=1e-9, atol=1e-11)


def test_evaluation_and_forgotten_gradients_leave_no_trace():
    torch.manual_seed(0)
    model = plain().double()
    other = copy.deepcopy(model)
    first, second = CoActivation(model, **OPTIONS), CoActivation(other, **OPTIONS)
    for x, y in batches(3):
        stepped(model, first, x, y)
        other.eval()
        other(100 * x)
        other.train()
        with torch.no_grad():
            other(100 * x)
        other(100 * x)
        F.cross_entropy(other(torch.inf * x), y).backward()
        other.zero_grad()  # the model's, not the optimizer's
        F.cross_entropy(other(100 * x), y).backward()  # dropped by zero_grad
        stepped(other, second, x, y)
    same(model, other, rtol=0, atol=0)


@pytest.mark.parametrize("set_to_none", [True, False])
def test_inputs_of_gradients_that_the_model_zeroed_are_forgotten(set_to_none):
    torch.manual_seed(0)
    model = plain().double()
    other = copy.deepcopy(model)
    first, second = CoActivation(model, **OPTIONS), CoActivation(other, **OPTIONS)
    for x, y in batches(3):
        stepped(model, first, x, y)
        F.cross_entropy(other(3 * x), y).backward()
        late = F.cross_entropy(other(x[:4]), y[:4], reduction="sum")
        other.zero_grad(set_to_none)
        (late / len(y)).backward()  # in parts, one of which was computed before
        (F.cross_entropy(other(x[4:]), y[4:], reduction="sum") / len(y)).backward()
        second.step()
        second.zero_grad()
    same(model, other, rtol=1e-9, atol=1e-12)


def test_layers_that_are_shared_frozen_or_never_called_take_steps_of_adam():
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.unused = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6)
            self.second.weight = self.first.weight
            self.frozen, self.last = nn.Linear(6, 6), nn.Linear(6, 3)
            self.frozen.bias.requires_grad_(False)

        def forward(self, x: Tensor) -> Tensor:
            h = torch.tanh(self.second(torch.tanh(self.first(x))))
            h = torch.tanh(F.linear(h, self.unused.weight, self.unused.bias))
            return self.last(torch.tanh(self.frozen(h)))

    torch.manual_seed(0)
    model = Odd().double()
    other = copy.deepcopy(model)
    optimizer = CoActivation(model, lr=0.05)
    names = dict(other.named_parameters())
    adam = torch.optim.Adam([p for p in names.values() if p.requires_grad], 0.05)
    x, y = batches(1)[0]
    stepped(model, optimizer, x, y)
    F.cross_entropy(other(x), y).backward()
    adam.step()
    memories = ["frozen.weight", "last.weight"]
    assert [name for name, p in model.named_parameters() if "Y" in optimizer.state[p]] == memories
    for name, p in model.named_parameters():
        if name not in memories and p.grad is not None:
            torch.testing.assert_close(p, names[name])


def test_a_checkpoint_goes_on_and_schedulers_move_the_rate():
    torch.manual_seed(0)
    model = Branches().double()
    optimizer = CoActivation(model, **OPTIONS)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    data = batches(5)
    for batch in data[:2]:
        stepped(model, optimizer, *batch)
        scheduler.step()
    saved = pickle.loads(pickle.dumps((model.state_dict(), optimizer.state_dict(), scheduler.state_dict())))
    again = Branches().double()
    resumed = CoActivation(again, **OPTIONS)
    follow = torch.optim.lr_scheduler.ExponentialLR(resumed, 0.5)
    for each, state in zip((again, resumed, follow), saved, strict=True):
        each.load_state_dict(state)
    assert resumed.param_groups[0]["lr"] == 0.05 / 4
    for batch in data[2:]:
        stepped(model, optimizer, *batch)
        stepped(again, resumed, *batch)
    same(model, again, rtol=0, atol=0)


def test_a_copied_or_pickled_model_records_nothing_and_close_removes_the_hooks():
    model = plain().double()
    optimizer = CoActivation(model)
    x, y = batches(1)[0]
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        copied(x).sum().backward()
    assert all(recorder.sums is None for recorder in optimizer.recorders)
    stepped(model, optimizer, x, y)
    optimizer.close()
    model(x)
    assert all(recorder.sums is None for recorder in optimizer.recorders)
    assert altmin.AltMin(model).step(x, y).loss > 0


def test_autocast_and_weights_in_bfloat16():
    torch.manual_seed(0)
    x, y = (t.float() if t.is_floating_point() else t for t in batches(1, 64)[0])
    y = (x[:, 0] > 0).long()
    model = plain()
    optimizer = CoActivation(model, 0.02)
    for _ in range(40):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    assert optimizer.state[model[0].weight]["Y"].dtype == torch.float32
    assert float(loss.detach()) < 0.2
    half = plain().bfloat16()
    optimizer = CoActivation(half, 0.02)
    losses = [stepped(half, optimizer, x.bfloat16(), y) for _ in range(40)]
    optimizer.load_state_dict(optimizer.state_dict())
    assert stepped(half, optimizer, x.bfloat16(), y) < 0.1 < losses[0]


def _saved_and_left(what: object, path: str) -> None:
    """Ends a rank without destructors: DDP's may wait for a thread of gloo's, which waits for Python's lock."""
    torch.save(what, path)
    os._exit(0)


def _rank(rank: int, path: str) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{path}/store", rank=rank, world_size=2)
    torch.manual_seed(0)
    model = Branches().double()
    parallel = nn.parallel.DistributedDataParallel(model)
    optimizer = CoActivation(parallel, **OPTIONS)
    for x, y in batches(3):
        stepped(parallel, optimizer, x[rank::2], y[rank::2])
    _saved_and_left(model.state_dict(), f"{path}/{rank}.pt")


def test_two_ranks_of_ddp_take_the_steps_of_one_process(tmp_path):
    mp.spawn(_rank, (str(tmp_path),), nprocs=2)
    torch.manual_seed(0)
    model = Branches().double()
    optimizer = CoActivation(model, **OPTIONS)
    for batch in batches(3):
        stepped(model, optimizer, *batch)
    for rank in (0, 1):
        torch.testing.assert_close(torch.load(tmp_path / f"{rank}.pt"), model.state_dict(), rtol=1e-8, atol=1e-10)


class Choice(nn.Module):
    """Which of two layers is called depends on the inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.last = nn.Linear(6, 5), nn.Linear(6, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.tanh((self.a if x[0, 0] > 0 else self.b)(x)))


def _choosing_rank(rank: int, path: str) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{path}/store", rank=rank, world_size=2)
    torch.manual_seed(0)
    parallel = nn.parallel.DistributedDataParallel(Choice().double(), find_unused_parameters=True)
    optimizer = CoActivation(parallel, **OPTIONS)
    for x, y in batches(2):
        x[:, 0] = x[:, 0].abs() * (1 if rank else -1)
        stepped(parallel, optimizer, x, y)
    layer = parallel.module.a.weight
    _saved_and_left([parallel.module.state_dict(), optimizer.state[layer]["Y"]], f"{path}/{rank}.pt")


def test_ranks_that_call_different_layers_average_what_there_is(tmp_path):
    mp.spawn(_choosing_rank, (str(tmp_path),), nprocs=2)
    one, other = (torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1))
    torch.testing.assert_close(one, other, rtol=0, atol=0)
    torch.manual_seed(0)
    model = Choice().double()
    optimizer = CoActivation(model, **OPTIONS)
    for x, y in batches(2):
        x[:, 0] = x[:, 0].abs()
        stepped(model, optimizer, x, y)
    torch.testing.assert_close(one[1], optimizer.state[model.a.weight]["Y"])


def adam_alone(model: nn.Module, optimizer: CoActivation) -> list[bool]:
    """Of each Linear layer, whether it took a step of Adam."""
    return ["Y" not in optimizer.state[m.weight] for m in model if isinstance(m, nn.Linear)]


def test_other_hooks_and_a_second_optimizer_leave_the_memory():
    torch.manual_seed(0)
    model, (x, y) = plain().double(), batches(1)[0]
    model[0].register_forward_hook(lambda *_: None)
    stepped(model, CoActivation(model, **OPTIONS), x, y)
    other = copy.deepcopy(model)
    first, second = CoActivation(model, **OPTIONS), CoActivation(other, **OPTIONS)
    stepped(model, first, x, y)
    stepped(other, second, x, y)
    assert adam_alone(model, first) == adam_alone(other, second) == [False] * 3
    same(model, other, rtol=0, atol=0)


def test_layers_may_be_called_by_keyword():
    class Named(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return self.inner(input=x)

    model, (x, y) = Named(6, 3).double(), batches(1)[0]
    model.inner = nn.Linear(6, 3).double()
    optimizer = CoActivation(model)
    stepped(model, optimizer, x, y)
    assert "Y" in optimizer.state[model.inner.weight]


def test_freezing_and_unfreezing_between_steps():
    torch.manual_seed(0)
    model, (x, y) = plain().double(), batches(1)[0]
    model[0].requires_grad_(False)
    optimizer = CoActivation(model, **OPTIONS)
    stepped(model, optimizer, x, y)
    model[2].bias.requires_grad_(False)
    bias, weight = (p.detach().clone() for p in (model[2].bias, model[0].weight))
    model[0].requires_grad_(True)
    stepped(model, optimizer, x, y)
    assert adam_alone(model, optimizer) == [False] * 3
    assert torch.equal(model[2].bias, bias)
    assert not torch.equal(model[0].weight, weight)
    model[2].requires_grad_(True)
    stepped(model, optimizer, x, y)
    assert adam_alone(model, optimizer) == [False] * 3


def test_a_layer_whose_parameters_are_replaced_takes_steps_of_adam():
    torch.manual_seed(0)
    model, (x, y) = plain().double(), batches(1)[0]
    optimizer = CoActivation(model, lr=0.05)
    stepped(model, optimizer, x, y)
    prune.l1_unstructured(model[0], "weight", 0.3)  # the bias is the first parameter now
    nn.utils.parametrizations.weight_norm(model[2])
    before = model[0].weight_orig.detach().clone()
    stepped(model, optimizer, x, y)
    state = optimizer.state[model[0].weight_orig]
    mean, square = state["exp_avg"] / (1 - 0.9**2), state["exp_avg_sq"] / (1 - 0.999**2)
    torch.testing.assert_close(model[0].weight_orig.detach(), before - 0.05 * mean / (square.sqrt() + 1e-8))


def test_a_step_under_autocast_is_that_outside():
    found = []
    for inside in (True, False):
        torch.manual_seed(0)
        model, x = plain(), torch.randn(8, 6)
        optimizer = CoActivation(model, 0.1)
        model(x).square().mean().backward()
        with torch.autocast("cpu", torch.bfloat16, enabled=inside):
            optimizer.step()
        found.append(model)
    same(*found, rtol=0, atol=0)


def test_a_checkpoint_keeps_the_bits_of_memories_and_others_are_refused():
    torch.manual_seed(0)
    x, y = batches(1)[0]
    model = plain().bfloat16()
    optimizer = CoActivation(model, rank=4)
    stepped(model, optimizer, x.bfloat16(), y)
    saved, other = optimizer.state_dict(), copy.deepcopy(model)
    resumed = CoActivation(other, rank=4)
    resumed.load_state_dict(saved)
    for m, each in ((model, optimizer), (other, resumed)):
        stepped(m, each, x.bfloat16(), y)
    torch.testing.assert_close(resumed.state_dict(), optimizer.state_dict(), rtol=0, atol=0)
    adam = torch.optim.Adam(model.parameters())
    adam.step()
    other = CoActivation(plain().bfloat16(), rank=5)
    for given in (saved, adam.state_dict()):
        before = copy.deepcopy(other.state_dict())
        with pytest.raises(ValueError, match="not the state of a CoActivation for these layers with rank=5"):
            other.load_state_dict(given)
        assert str(other.state_dict()) == str(before)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t))], ids=["copy", "pickle"])
def test_a_model_copied_with_its_optimizer_goes_on_as_the_original(copied):
    data = batches(20)
    model = plain().double()
    optimizer = CoActivation(model)
    stepped(model, optimizer, *data[0])
    other, further = copied((model, optimizer))
    for x, y in data[1:]:
        stepped(model, optimizer, x, y)
        stepped(other, further, x, y)
    same(model, other, rtol=0, atol=0)


def test_what_cannot_be_is_refused_in_a_sentence():
    with pytest.raises(TypeError, match="given list alone"):
        CoActivation(list(plain().parameters()))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="without parameters to train"):
        CoActivation(plain().requires_grad_(False))
    with pytest.raises(ValueError, match="forget of CoActivation"):
        CoActivation(plain(), forget=1.0)
