"""Models with several inputs: masks and other tensors are handed on to the blocks that use them."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from graph_cases import F64, as_backprop
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

import altmin
from altmin.training import fit


class Sentences(nn.Module):
    """Tokens and a mask, which every layer takes."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.a, self.b, self.head = (
            nn.Embedding(9, 8),
            nn.Linear(8, 8),
            nn.Linear(8, 8),
            nn.Linear(8, 3),
        )

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        kept = mask.unsqueeze(-1).to(self.a.weight.dtype)
        x = torch.tanh(self.a(self.embedding(tokens))) * kept
        x = torch.tanh(self.b(x)) * kept
        return self.head(x.sum(1) / kept.sum(1))


class Encoder(nn.Module):
    """torch's transformer with its padding mask."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(9, 8)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True) for _ in range(2)
        )
        self.head = nn.Linear(8, 3)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=~mask)
        return self.head((x * mask.unsqueeze(-1)).sum(1))


class Towers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.user = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5))
        self.item = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 5))
        self.head = nn.Linear(10, 3)

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        return self.head(torch.relu(torch.cat([self.user(user), self.item(item)], 1)))


class Conditioned(nn.Module):
    """Both inputs of numbers, the second in each layer and the first again at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(4, 5), nn.Linear(8, 5), nn.Linear(9, 3)

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        y = torch.tanh(self.a(x))
        y = torch.tanh(self.b(torch.cat([y, z], 1)))
        return self.c(torch.cat([y, x], 1))


class Optional(Sentences):
    def forward(self, tokens: Tensor, scale: float = 1.0, mask: Tensor | None = None) -> Tensor:  # type: ignore[override]
        return scale * super().forward(tokens, torch.ones_like(tokens) if mask is None else mask)


def sentences() -> tuple[Tensor, Tensor]:
    mask = torch.rand(6, 5) > 0.3
    mask[:, 0] = True
    return torch.randint(9, (6, 5)), mask


def pairs() -> tuple[Tensor, Tensor]:
    return torch.randn(6, 4, dtype=F64), torch.randn(6, 3, dtype=F64)


CASES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "a mask": (Sentences, sentences, {}),
    "a mask, one block": (Sentences, sentences, {"at": []}),
    "a padding mask of torch's transformer": (Encoder, sentences, {}),
    "two towers": (Towers, pairs, {}),
    "two towers cut inside": (Towers, pairs, {"at": ["user.0", "user.2", "item.0", "item.2"]}),
    "numbers in every layer": (Conditioned, pairs, {}),
}


@pytest.mark.parametrize("by_name", [False, True], ids=["tuple", "dict"])
@pytest.mark.parametrize("name", CASES)
def test_codes_that_stay_give_autograds_gradients(name: str, by_name: bool) -> None:
    make, draw, options = CASES[name]
    torch.manual_seed(0)
    model, x, y = make().double(), draw(), torch.randint(3, (6,))
    chain = altmin.split(model, **options)
    torch.testing.assert_close(chain(x), model(*x))
    given = dict(reversed(list(zip(chain.inputs, x, strict=True)))) if by_name else x
    as_backprop(model, x, y, given=given, **options)


def learnable(n: int = 300) -> tuple[dict[str, Tensor], Tensor]:
    """The class is that of the most frequent token among those that the mask keeps."""
    torch.manual_seed(0)
    tokens, mask = torch.randint(9, (n, 5)), torch.rand(n, 5) > 0.3
    mask[:, 0] = True
    return {"tokens": tokens, "mask": mask}, ((tokens % 3 == 0) & mask).sum(1).clamp(max=2)


@pytest.mark.parametrize(
    "method, form",
    [*(("am-adam", form) for form in ("dict", "tuple", "arrays", "loader", "list of batches")), ("adam", "dict")],
)
def test_fit_trains_and_evaluates_it(method: str, form: str) -> None:
    x, y = learnable()
    data: Any = {
        "dict": (x, y),
        "tuple": (tuple(x.values()), y),
        "arrays": ({name: np.asarray(t) for name, t in x.items()}, y.numpy()),
        "loader": DataLoader([({name: t[i] for name, t in x.items()}, y[i]) for i in range(len(y))], 50),
        "list of batches": [
            ((x["tokens"][i : i + 50], x["mask"][i : i + 50]), y[i : i + 50]) for i in range(0, 300, 50)
        ],
    }[form]
    torch.manual_seed(1)
    model = Sentences()
    size = {} if form in ("loader", "list of batches") else {"batch_size": 50}
    history = fit(altmin.methods.create(method, model, lr=0.02), data, data, epochs=15, **size)
    assert history.epochs[-1]["test_accuracy"] > 0.85
    with torch.no_grad():
        right = (model(**x).argmax(1) == y).double().mean().item()
    assert history.epochs[-1]["test_accuracy"] == pytest.approx(right)


def test_arguments_with_a_default_are_inputs_if_they_are_named() -> None:
    torch.manual_seed(0)
    tokens, mask = sentences()
    y = torch.randint(3, (6,))
    model = Optional()
    assert altmin.split(model).inputs == ("tokens",)
    other = copy.deepcopy(model)
    am = altmin.methods.create("am-adam", model, inputs=["tokens", "mask"])
    backprop = F.cross_entropy(other(tokens, mask=mask), y)
    assert float(am.step({"tokens": tokens, "mask": mask}, y).loss) == pytest.approx(float(backprop), rel=1e-5)
    with pytest.raises(ValueError, match="by name"):
        am.step((tokens, mask), y)


@pytest.mark.parametrize(
    "x",
    [
        torch.zeros(6, 5, dtype=torch.int64),
        (torch.zeros(6, 5),) * 3,
        {"tokens": torch.zeros(6, 5)},
        (torch.zeros(6, 5), torch.zeros(5, 5)),
    ],
)
def test_a_batch_that_does_not_fit_is_refused(x: Any) -> None:
    model = Sentences()
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ValueError):
        altmin.AltMin(model).step(x, torch.zeros(6, dtype=torch.int64))
    for name, t in model.state_dict().items():
        assert torch.equal(t, before[name])


@pytest.mark.parametrize("change", [lambda u, v: (u, v.long()), lambda u, v: (u.double(), v)], ids=["int64", "float64"])
def test_inputs_of_another_type_are_named_in_the_error(change: Any, request: Any) -> None:
    x = change(torch.randn(6, 4), torch.randn(6, 3))
    with pytest.raises(ValueError, match=rf"{request.node.callspec.id}.* parameters torch.float32\); give"):
        altmin.AltMin(Towers()).step(x, torch.arange(6) % 3)


@pytest.mark.parametrize("inputs", [["tokens"], ["tokens", "mask", "masks"]])
def test_names_of_no_arguments_are_refused(inputs: list[str]) -> None:
    with pytest.raises(ValueError):
        altmin.AltMin(Sentences(), inputs=inputs)


def test_a_model_of_one_input_takes_a_tuple_of_one() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    x, y = torch.randn(6, 4), torch.randint(2, (6,))
    one, other = altmin.AltMin(copy.deepcopy(model)), altmin.AltMin(model)
    assert float(one.step(x, y).loss) == float(other.step((x,), y).loss)


def test_the_objective_is_that_of_the_steps_metrics() -> None:
    """With codes moved by d the loss at the output grows by mu |d|^2 / n in the block below."""
    torch.manual_seed(0)
    x, y = sentences(), torch.randint(3, (6,))
    chain = altmin.split(Sentences().double())
    model = chain.model
    kept = x[1].unsqueeze(-1).double()
    first = model.embedding(x[0])
    second = model.a(first)
    codes = [first, second, model.b(torch.tanh(second) * kept) + 0.1]
    moved = altmin.objective(chain, codes, x, y, 3.0, nn.CrossEntropyLoss())
    output = model.head((torch.tanh(codes[2]) * kept).sum(1) / kept.sum(1))
    torch.testing.assert_close(moved, F.cross_entropy(output, y) + 3.0 * 0.01 * codes[2].numel() / 6)


def test_it_is_explained_like_other_models_and_not_augmented() -> None:
    x, y = learnable(60)
    am = altmin.AltMin(Sentences())
    found = altmin.explain(am, x, y)
    assert len(found.rows) == len(am.chain)
    still = altmin.explain(Sentences(), tuple(x.values()), y, share=0.0)
    assert [row.cosine for row in still.rows] == pytest.approx([1.0] * len(still.rows), abs=1e-4)
    with pytest.raises(ValueError, match="augment"):
        fit(am, (x, y), epochs=1, batch_size=20, augment=lambda x, generator: x)
