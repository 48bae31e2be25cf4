"""`altmin doctor` shows what `altmin.explain` finds for a model and data by their names."""

from typing import Any

import pytest
import torch
from commands import altmin, read  # noqa: F401  (a fixture)

from altmin import data, explain, methods, models
from altmin.training.samples import epoch_order

# ruff: noqa: F811


def test_it_shows_and_writes_what_explain_finds(altmin: Any, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["doctor", "mlp-2x16", "--batch-size", 50, "--share", 0.3, "--lr", 0.02, "--seed", 3, "--json", "d.json"]
    assert altmin(*line) == 0
    found, shown = read("d.json"), capsys.readouterr().out
    torch.manual_seed(3)
    model = models.create("mlp-2x16", (1, 28, 28), 10)
    x, y = data.load("mnist", "train")
    rows = epoch_order(300, 3, 0)[:50]
    expected = explain(model, x[rows], y[rows], share=0.3, lr=0.02)
    for mine, theirs in zip(found["rows"], expected.to_dict()["rows"], strict=True):
        assert mine == theirs | {name: list(theirs[name]) for name in ("output", "autograd")}
        assert f"{mine['cosine']:.3g}" in shown
    assert found["config"]["options"]["share"] == 0.3
    assert all(f"- {sentence}" in shown for sentence in found["advice"])


def test_it_may_train_first(altmin: Any) -> None:
    assert altmin("doctor", "mlp-1x16", "--batch-size", 50, "--after", 2, "--method", "am-sgd", "--json", "d.json") == 0
    torch.manual_seed(0)
    model = models.create("mlp-1x16", (1, 28, 28), 10)
    method, (x, y) = methods.create("am-sgd", model), data.load("mnist", "train")
    first, second, third, *_ = epoch_order(300, 0, 0).split(50)
    for rows in (first, second):
        method.step(x[rows], y[rows])
    expected = float(torch.nn.functional.cross_entropy(model(x[third]), y[third]).detach())
    assert read("d.json")["loss"] == pytest.approx(expected, rel=1e-5)


def test_a_text_model_is_explained_too(altmin: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert altmin("doctor", "gpt-1x16", "--data", "shakespeare", "--batch-size", 4) == 0
    assert "Attention" in capsys.readouterr().out


@pytest.mark.parametrize(
    "line, words",
    [
        ("doctor", "MODEL"),
        ("doctor mlp", "unknown model 'mlp'"),
        ("doctor mlp-2x16 --method adam", "'adam' moves no codes"),
        ("doctor mlp-2x16 --method am-adm", "did you mean 'am-adam'?"),
        ("doctor mlp-2x16 --data shakespeare", "mlp-2x16 reads numbers"),
        ("doctor mlp-2x16 --set shares=1", "did you mean 'share'?"),
        ("doctor mlp-2x16 --share 2", "share of GradientCodes lies between 0 and 1"),
        ("doctor mlp-2x16 --after 3 --batch-size 100", "--after 3 leaves no batch: there are 3 of 100 samples"),
        ("doctor mlp-2x16 --json nowhere/d.json", "the folder nowhere of d.json does not exist"),
    ],
)
def test_a_mistake_gets_one_line(altmin: Any, line: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert altmin(*line.split()) == 2
    out, error = capsys.readouterr()
    assert words in error
    assert (out, error.count("\n")) == ("", 1)
