"""Muon, SOAP and Shampoo are torch's and the package's, driven as a person would drive them by hand."""

import copy
import sys
from typing import Any

import pytest
import torch
from commands import COMPARE, made_up  # noqa: F401  (a fixture)
from torch import Tensor, nn

from altmin import Diverged, Ensemble, methods, models
from altmin.cli import run
from altmin.runners.compiled import compiled


def conv_net() -> nn.Sequential:
    torch.manual_seed(1)
    layers = [nn.Conv2d(1, 3, 3, bias=False), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 5), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(5, 3))


def batch(seed: int, n: int = 7) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    return torch.randn(n, 1, 4, 4, generator=g), torch.randint(3, (n,), generator=g)


def by_hand(model: nn.Module, optimizers: list[Any], steps: int = 12, largest: float | None = None) -> None:
    for t in range(steps):
        x, y = batch(t)
        model.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        if largest is not None:
            nn.utils.clip_grad_norm_(model.parameters(), largest)
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


def test_a_torch_without_muon_is_told_of_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.optim, "Muon")
    words = r"^muon needs torch.optim.Muon, which torch \S+ lacks; install torch 2.11 or newer$"
    with pytest.raises(ValueError, match=words):
        methods.create("muon", conv_net())


@pytest.mark.cuda
@pytest.mark.parametrize("name, tolerance", [("adamw", 1e-9), ("kfac", 1e-9), ("muon", 2e-2)])
def test_on_a_gpu_they_take_the_steps_they_take_on_the_processor(name: str, tolerance: float) -> None:
    """Muon rounds to bfloat16. With one output K-FAC's drawn signs, which differ there, do not matter."""
    found = []
    for device in ("cpu", "cuda"):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(12, 5), nn.Tanh(), nn.Linear(5, 1))
        method = methods.create(name, model.double().to(device), loss=nn.MSELoss())
        for t in range(8):
            x, y = batch(t)
            method.step(x.double().to(device), y.double().unsqueeze(1).to(device))
        found.append([p.detach().cpu() for p in model.parameters()])
    torch.testing.assert_close(found[0], found[1], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("largest", [None, 0.3])
def test_soap_is_the_packages(largest: float | None) -> None:
    package = pytest.importorskip("pytorch_optimizer")
    model = conv_net()
    options = {"lr": 0.01, "weight_decay": 0.1, "precondition_frequency": 3}
    ours = copy.deepcopy(model)
    by_method("soap", ours, momentum=0.8, beta2=0.9, clip_norm=largest, **options)
    by_hand(model, [package.SOAP(model.parameters(), betas=(0.8, 0.9), **options)], largest=largest)
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), model.parameters(), strict=True))


@pytest.mark.parametrize("graft", ["sgd", "rmsprop"])
def test_shampoo_is_the_packages(graft: str) -> None:
    package = pytest.importorskip("pytorch_optimizer")
    from pytorch_optimizer.optimizer.utils.graft import LayerWiseGrafting

    model = conv_net()
    ours = copy.deepcopy(model)
    options = {"lr": 0.01, "weight_decay": 0.1}
    by_method("shampoo", ours, momentum=0.8, beta2=0.9, precondition_frequency=3, graft=graft, **options)
    theirs = package.ScalableShampoo(
        model.parameters(),
        betas=(0.8, 0.9),
        decoupled_weight_decay=True,
        start_preconditioning_step=3,
        preconditioning_compute_steps=3,
        graft_type=LayerWiseGrafting[graft.upper()],
        use_svd=True,
        **options,
    )
    by_hand(model, [theirs])
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), model.parameters(), strict=True))


@pytest.mark.parametrize("name", ["soap", "shampoo"])
def test_biases_and_normalisation_are_spared_weight_decay_if_so_wanted(name: str) -> None:
    pytest.importorskip("pytorch_optimizer")
    optimizer = methods.create(name, conv_net(), weight_decay=0.1, decay_biases=False).optimizer
    decays = [(group["weight_decay"], [p.ndim for p in group["params"]]) for group in optimizer.param_groups]
    assert decays == [(0.1, [4, 2, 2]), (0.0, [1, 1, 1, 1])]


@pytest.mark.parametrize("name", ["soap", "shampoo"])
def test_an_option_that_cannot_be_is_refused(name: str) -> None:
    pytest.importorskip("pytorch_optimizer")
    with pytest.raises(ValueError, match=f"precondition_frequency of {name} must be a whole number of at least 1"):
        methods.create(name, conv_net(), precondition_frequency=0)
    with pytest.raises(ValueError, match=f"momentum of {name} lies between 0 and 1, and is not 1, given 1.0"):
        methods.create(name, conv_net(), momentum=1.0)
    with pytest.raises(ValueError, match="unknown graft of shampoo, 'adm'"):
        methods.create("shampoo", conv_net(), graft="adm")


def test_a_momentum_of_muon_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="momentum of muon lies between 0 and 1, and is not 1, given 2"):
        methods.create("muon", conv_net(), momentum=2)


@pytest.mark.parametrize("name", ["soap", "shampoo", "kfac", "muon"])
def test_a_table_with_sparse_gradients_is_refused_in_a_sentence(name: str) -> None:
    if name in ("soap", "shampoo"):
        pytest.importorskip("pytorch_optimizer")
    model = nn.Sequential(nn.Embedding(5, 3, sparse=True), nn.Flatten(), nn.Linear(6, 2))
    with pytest.raises(ValueError, match=rf"{name} does not take the sparse gradients .*; make the table with"):
        methods.create(name, model)


@pytest.mark.parametrize("name", ["soap", "kfac"])
def test_a_matrix_that_cannot_be_factored_is_a_divergence(name: str) -> None:
    if name == "soap":
        pytest.importorskip("pytorch_optimizer")
    method = methods.create(name, conv_net())
    x, y = batch(0)
    with pytest.raises(Diverged, match="a matrix of gradients cannot be factored; lower the learning rate"):
        method.step(x * torch.nan, y)


@pytest.mark.parametrize("name", ["soap", "shampoo", "kfac", "muon"])
def test_runners_that_cannot_take_them_say_so(name: str) -> None:
    if name in ("soap", "shampoo"):
        pytest.importorskip("pytorch_optimizer")
    method = methods.create(name, conv_net())
    with pytest.raises(ValueError, match=r"member 0 cannot be in an Ensemble: .*; train such methods one by one"):
        Ensemble([method])
    assert "on the processor" in method.why_not_captured()
    if name == "kfac":
        with pytest.raises(TypeError, match=r"only backprop is compiled, .*, not KFACBackprop"):
            compiled(method)


@pytest.mark.usefixtures("made_up")
def test_without_the_package_one_sentence_tells_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "pytorch_optimizer"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pytorch_optimizer", None)
    with pytest.raises(
        ModuleNotFoundError, match=r"^soap needs pytorch-optimizer, which is not installed: pip install"
    ):
        methods.create("soap", conv_net())
    assert run([*COMPARE, "--methods", "adam,shampoo"]) == 2
    said = "altmin: shampoo needs pytorch-optimizer, which is not installed: pip install pytorch-optimizer\n"
    assert capsys.readouterr().err == said
