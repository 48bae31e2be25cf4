"""Nets with discrete activations from the outside: models, audit, command line."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from test_discrete_codes import batch, net
from torch import nn

import altmin
from altmin.cli import run
from altmin.maps import CLOSED_FORMS, Discrete


def test_the_models_are_those_of_their_names():
    kinds = [type(m) for m in altmin.models.create("binary-7", (1, 28, 28), 10)]
    assert kinds == [nn.Flatten, nn.Linear, altmin.Sign, nn.Linear, nn.Tanh, nn.Linear]
    staircase = altmin.models.create("staircase-7", (1, 28, 28), 10)
    assert isinstance(staircase[2], altmin.Staircase)
    assert staircase[2].levels == 4
    deep = altmin.models.binary_mlp(6, (5, 4, 3), 2, altmin.Sign, dropout=0.2)
    assert [type(m) for m in deep][1:] == [nn.Linear, altmin.Sign, nn.Dropout] * 3 + [nn.Linear]
    assert [m.in_features for m in deep if isinstance(m, nn.Linear)] == [6, 5, 4, 3]


def test_the_audit_tells_a_search_from_an_estimate():
    x, y = batch()
    model = net(altmin.Sign(), nn.Tanh())
    searched = altmin.audit(altmin.AltMin(model, codes="discrete"), x, y).findings[1]
    estimated = altmin.audit(altmin.AltMin(model, codes="straight-through"), x, y).findings[1]
    assert (searched.discrete, searched.estimates, searched.derivatives) == (["Sign"], 0, 0)
    assert "no derivative of Sign exists and none was used" in str(searched)
    assert (estimated.discrete, estimated.estimates, estimated.derivatives) == (["Sign"], 2, 0)
    assert "a straight-through estimate stood in for the derivative of Sign 2 times" in str(estimated)


def test_the_audit_would_notice_a_derivative(monkeypatch):
    class Cheat(Discrete):
        def pull(self, p, saved, v):
            return v

        push = pull

    class Flawed(altmin.GradientCodes):
        """A solver that takes what it should not."""

    monkeypatch.setitem(CLOSED_FORMS, altmin.Sign, Cheat)
    found = altmin.audit(altmin.AltMin(net(altmin.Sign()), codes=Flawed()), *batch()).findings[1]
    assert found.derivatives > 0
    assert "A DERIVATIVE OF Sign WAS USED" in str(found)


def trained(tmp_path: Path, *arguments: str) -> dict[str, Any]:
    common = ["train", "--model", "binary-16", "--limit", "400", "--json", str(tmp_path / "run.json")]
    assert run([*common, *arguments]) == 0
    return json.loads((tmp_path / "run.json").read_text())


def test_the_command_line_picks_a_solver_and_freezes_the_first_layer(tmp_path):
    default, discrete, through, frozen = (
        trained(tmp_path, *arguments)
        for arguments in ([], ["--codes", "discrete"], ["--codes", "straight-through"], ["--freeze-first"])
    )
    losses = [found["epochs"][0]["train_loss"] for found in (default, discrete, through, frozen)]
    assert losses[0] == losses[1]
    assert len(set(losses)) == 3
    assert through["config"]["options"]["codes"] == "straight-through"
    assert [found["config"]["freeze_first"] for found in (default, frozen)] == [False, True]
    by_backprop = trained(tmp_path, "--method", "adam", "--freeze-first")  # nothing is to be differentiated below sign
    assert by_backprop["epochs"][0]["train_loss"] < 2.4


def test_a_frozen_layer_keeps_its_weights_with_every_method():
    for name in altmin.methods.names():
        model = net(nn.Tanh(), nn.Tanh())
        altmin.models.freeze_first(model)
        before = [p.detach().clone() for p in model.parameters()]
        method = altmin.methods.create(name, model)
        method.step(*batch())
        method.end_epoch()
        same = [torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True)]
        assert same == [True, True, False, False, False, False], name


def test_compare_gives_the_solver_to_the_methods_that_have_codes(tmp_path):
    common = ["--model", "binary-16", "--limit", "400", "--epochs", "1", "--json", str(tmp_path / "c.json")]
    assert run(["compare", *common, "--methods", "am-adam,adam", "--codes", "straight-through", "--freeze-first"]) == 0
    found = json.loads((tmp_path / "c.json").read_text())["config"]
    assert found["options"]["am-adam"]["codes"] == "straight-through"
    assert "codes" not in found["options"]["adam"]
    assert found["freeze_first"] is True


MISTAKES = {
    "train --model binary-16 --method adam": "Sign has no derivative, so neither backprop nor GradientCodes",
    "train --model binary-16 --codes gradient": "Sign has no derivative, so neither backprop nor GradientCodes",
    "train --model binary-16 --codes discret": "option codes of method 'am-adam' takes",
    "train --method adam --codes discrete": "unknown option of method 'adam', 'codes'",
    "train --codes discrete --set codes=gradient": "gives codes twice",
    "train --model binary-0": "unknown model 'binary-0'",
    "compare --methods adam,sgd --codes discrete": "none of these methods has any: adam, sgd",
    "compare --methods am-adam --codes discrete --set codes=gradient": "--set and --codes both give codes of am-adam",
}


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_gets_one_clear_line(line, capsys):
    assert run([*line.split(), "--limit", "200"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("altmin: ")
    assert error.count("\n") == 1
    assert MISTAKES[line] in error
