"""Discrete activations on the command line."""

import json
from pathlib import Path
from typing import Any

import pytest

from altmin.cli import run


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
    "train --model binary-16 --codes discret": "unknown code solver in --codes, 'discret'; did you mean 'discrete'?",
    "compare --model binary-16 --codes sign": "unknown code solver in --codes, 'sign'",
    "train --model binary-16 --set codes=discret": "option codes of method 'am-adam' takes",
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
