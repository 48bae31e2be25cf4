"""Backprop is the loop that people write with torch, its optimizer fused if wanted."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from altmin import Ensemble, methods, models


@pytest.mark.cuda
def test_fused_adam_on_a_gpu_can_be_recorded() -> None:
    assert methods.create("adam", _net().cuda(), fused=True).optimizer.defaults["capturable"] is True


def _net() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3))


@pytest.mark.parametrize(
    "name, options, make",
    [
        ("adam", {"lr": 0.01, "weight_decay": 0.1}, lambda p: torch.optim.Adam(p, 0.01, weight_decay=0.1)),
        ("adam", {}, lambda p: torch.optim.Adam(p, 0.001)),
        ("adamw", {"lr": 0.01, "weight_decay": 0.1}, lambda p: torch.optim.AdamW(p, 0.01, weight_decay=0.1)),
        ("adamw", {}, lambda p: torch.optim.AdamW(p, 0.001)),
        ("sgd", {"lr": 0.2, "momentum": 0.5, "weight_decay": 0.1}, lambda p: torch.optim.SGD(p, 0.2, 0.5, 0, 0.1)),
        ("sgd", {}, lambda p: torch.optim.SGD(p, 0.1, 0.9)),
    ],
)
@pytest.mark.parametrize("loss", [None, nn.MSELoss()])
def test_a_step_is_the_loop_that_people_write(name, options, make, loss) -> None:
    torch.manual_seed(0)
    x = torch.randn(6, 5)
    y = torch.tensor([0, 1, 2, 0, 1, 2]) if loss is None else torch.randn(6, 3)
    model, method = _net(), methods.create(name, _net(), loss=loss, **options)
    optimizer = make(model.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        before = (loss or nn.CrossEntropyLoss())(model(x), y)
        before.backward()
        optimizer.step()
        metrics = method.step(x, y)
        assert torch.equal(metrics.loss, before.detach()), "the loss before the update"
        assert not metrics.loss.requires_grad
        method.end_epoch()
    torch.testing.assert_close([*model.parameters()], [*method.model.parameters()], rtol=0, atol=0)


def test_a_sequence_of_labels_is_taken_as_so_many_samples() -> None:
    """A net that looks at each place alone learns from (samples, time, features) what it learns from rows."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 4))
    x, y = torch.randn(2, 6, 3), torch.randint(4, (2, 6))
    losses = (None, nn.CrossEntropyLoss(label_smoothing=0.1, ignore_index=2))
    for loss in losses:
        ours, theirs = (methods.create("sgd", copy.deepcopy(model), loss=loss) for _ in range(2))
        torch.testing.assert_close(ours.step(x, y).loss, theirs.step(x.flatten(0, 1), y.flatten()).loss)
        torch.testing.assert_close([*ours.model.parameters()], [*theirs.model.parameters()])


CLIPPED = {
    "adam": lambda p: torch.optim.Adam(p, 0.01),
    "adamw": lambda p: torch.optim.AdamW(p, 0.01),
    "sgd": lambda p: torch.optim.SGD(p, 0.2, 0.9),
    "straight-through": lambda p: torch.optim.Adam(p, 0.01),
}
RATES = {"adam": 0.01, "adamw": 0.01, "sgd": 0.2, "straight-through": 0.01}


@pytest.mark.parametrize("largest", [0.05, 0.4, 100.0])
@pytest.mark.parametrize("name", CLIPPED)
def test_gradients_are_clipped_as_torch_clips_them(name: str, largest: float) -> None:
    model, method = _net().double(), methods.create(name, _net().double(), lr=RATES[name], clip_norm=largest)
    optimizer = CLIPPED[name](model.parameters())
    for seed in range(4):
        x = torch.randn(6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        y = torch.tensor([0, 1, 2, 0, 1, 2])
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), largest)
        assert 0.05 < norm < 100, "one of the limits acts and one does not"
        optimizer.step()
        method.step(x, y)
        torch.testing.assert_close([*model.parameters()], [*method.model.parameters()], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("largest", [0.05, 100.0])
@pytest.mark.parametrize("name", ["adam", "sgd"])
def test_every_member_of_an_ensemble_is_clipped_by_itself(name: str, largest: float) -> None:
    def made() -> list[Any]:
        nets = [nn.Sequential(*(copy.deepcopy(_net()))).double() for _ in range(2)]
        nn.init.constant_(nets[1][2].bias, 3.0)
        return [methods.create(name, net, lr=0.05, clip_norm=largest) for net in nets]

    ensemble, alone = Ensemble(made()), made()
    for seed in range(3):
        x = torch.randn(6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        y = torch.tensor([0, 1, 2, 0, 1, 2])
        ensemble.step(x, y)
        for i, method in enumerate(alone):
            method.step(x, y)
            for a, b in zip(ensemble.member(i).parameters(), method.model.parameters(), strict=True):
                torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)
    with pytest.raises(ValueError, match=r"clip_norm of the optimizer is None in member 0 but 1.0"):
        Ensemble([methods.create(name, _net()), methods.create(name, _net(), clip_norm=1.0)])


def conv_net() -> nn.Sequential:
    torch.manual_seed(1)
    layers = [nn.Conv2d(1, 3, 3, bias=False), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 5), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(5, 3))


def batch(seed: int, n: int = 7) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    return torch.randn(n, 1, 4, 4, generator=g), torch.randint(3, (n,), generator=g)


def by_hand(model: nn.Module, optimizers: list[Any], steps: int = 12) -> None:
    for t in range(steps):
        x, y = batch(t)
        model.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        for optimizer in optimizers:
            optimizer.step()


def by_method(name: str, model: nn.Module, steps: int = 12, **options: Any) -> None:
    method = methods.create(name, model, **options)
    for t in range(steps):
        method.step(*batch(t))


class AsMatrix(nn.Module):
    """A convolution whose parameter is a matrix, as Muon takes it."""

    def __init__(self, conv: nn.Conv2d):
        super().__init__()
        self.weight = nn.Parameter(conv.weight.detach().flatten(1))
        self.shape = conv.weight.shape

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.conv2d(x, self.weight.view(self.shape))


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("decay_biases", [True, False])
def test_muon_is_torchs_muon_beside_adamw(decay_biases: bool, last: bool) -> None:
    """Hidden weights by Muon, convolutions as matrices, also if their channels lie last in memory."""
    model = conv_net().to(memory_format=torch.channels_last if last else torch.contiguous_format)
    ours, model[0] = copy.deepcopy(model), AsMatrix(model[0])
    by_method("muon", ours, lr=0.01, weight_decay=0.2, momentum=0.8, decay_biases=decay_biases)
    matrices = [model[0].weight, model[4].weight]
    vectors = [model[1].weight, model[1].bias, model[4].bias, model[6].bias]
    by_hand(
        model,
        [
            torch.optim.Muon(matrices, 0.01, 0.2, momentum=0.8, adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW([model[6].weight], 0.01, weight_decay=0.2),
            torch.optim.AdamW(vectors, 0.01, weight_decay=0.2 * decay_biases),
        ],
    )
    for (name, a), b in zip(ours.named_parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(a, b.view(a.shape), msg=f"{name}: {{}}".format, rtol=1e-4, atol=1e-5)


def test_muon_moves_the_matrices_of_a_transformer_but_not_its_embeddings_and_head() -> None:
    model = models.gpt(1, 8, 2, 5, 4)
    optimizer = methods.create("muon", model).optimizer
    names = {id(p): name for name, p in model.named_parameters()}
    by_muon = [names[id(p)] for group in optimizer.param_groups if "ns_steps" in group for p in group["params"]]
    assert by_muon == ["1.attend.weight", "1.project.weight", "2.expand.weight", "2.project.weight"]
    assert sum(len(group["params"]) for group in optimizer.param_groups) == len(names)
    lone = methods.create("muon", nn.Linear(3, 2)).optimizer
    assert not any("ns_steps" in group for group in lone.param_groups), "the output layer is by AdamW"
