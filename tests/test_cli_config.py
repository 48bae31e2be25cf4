"""`--save-config` writes the settings of a run, and `--config` gives that run again."""

import os
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from commands import COMPARE, TRAIN, altmin, read, without_seconds  # noqa: F401  (a fixture)
from hypothesis import given
from hypothesis import strategies as st

from altmin import methods
from altmin.cli.config import toml

# ruff: noqa: F811

SGD = [*TRAIN[:2], "am-sgd", *TRAIN[3:]]


def test_the_saved_settings_give_the_same_run_again(altmin: Any) -> None:
    asked = ["--epochs", 2, "--seed", 3, "--set", "lr=[0.1, 0.2]", "--set", "momentum=0.5", "--share", 0.3, "--at", "2"]
    more = ["--schedule", "cosine", "--eval-batches", "2,3", "--validation", "--set", "codes=straight-through"]
    assert altmin(*SGD, *asked, *more, "--json", "a.json", "--save-config", "run.toml") == 0
    assert altmin("train", "--config", "run.toml", "--json", "b.json", "--save-config", "again.toml") == 0
    first = without_seconds(read("a.json"))
    assert first == without_seconds(read("b.json"))
    assert first["config"]["options"]["momentum"] == 0.5, "the run was no default one"
    assert Path("run.toml").read_text() == Path("again.toml").read_text()


def test_an_option_of_the_command_line_overrides_the_file(altmin: Any) -> None:
    Path("run.toml").write_text('method = "adam"\nmodel = "mlp-1x16"\nlimit = 220\nepochs = 2\n[adam]\nlr = 0.5\n')
    both = ["--batch-size", 50, "--epochs", 1, "--save-config", "saved.toml", "--json"]
    assert altmin("train", "--config", "run.toml", *both, "file.json", "--lr", 0.01) == 0
    assert altmin(*TRAIN, *both, "line.json", "--set", "lr=0.01") == 0
    assert without_seconds(read("file.json")) == without_seconds(read("line.json"))
    assert altmin("train", "--config", "run.toml", *both, "file.json", "--set", "lr=0.02") == 0
    assert tomllib.loads(Path("saved.toml").read_text())["adam"]["lr"] == 0.02
    assert altmin("train", "--config", "run.toml", *both, "file.json", "--method", "sgd") == 0
    assert read("file.json")["config"]["lr"] == 0.1, "a table is for its own method"


def test_the_methods_of_compare_have_a_table_each(altmin: Any) -> None:
    options = ["--set", "am-mem-fitted.rate=none", "--set", "adam.lr=0.01"]
    line = [*COMPARE[:-1], 1, "--methods", "am-mem-fitted,adam", *options]
    assert altmin(*line, "--json", "a.json", "--save-config", "compare.toml") == 0
    saved = tomllib.loads(Path("compare.toml").read_text())
    assert (saved["am-mem-fitted"]["rate"], saved["adam"]["lr"]) == ("none", 0.01)
    assert altmin("compare", "--config", "compare.toml", "--json", "b.json") == 0
    first, second = read("a.json"), read("b.json")
    assert first["config"] == second["config"]
    runs = [[without_seconds(run) for run in found["runs"]] for found in (first, second)]
    assert runs[0] == runs[1]


MINE = """from altmin import methods

@methods.register("mine")
def mine(model, hurry: bool, lr: float = 0.01):
    return methods.create("adam", model, lr=2 * lr if hurry else lr)
"""


def test_a_module_that_is_imported_registers_a_method_for_every_command(
    altmin: Any, own_registry: None, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("my_methods_of_a_test.py").write_text(MINE)
    mine, imported = [*TRAIN[:1], "--method", "mine", *TRAIN[3:]], ["--import", "my_methods_of_a_test"]
    assert altmin(*mine, *imported, "--set", "hurry=true", "--json", "a.json", "--save-config", "run.toml") == 0
    assert altmin(*TRAIN, "--lr", 0.02, "--json", "b.json") == 0
    first, second = read("a.json"), read("b.json")
    assert [row["train_loss"] for row in first["epochs"]] == [row["train_loss"] for row in second["epochs"]]
    assert (first["method"], first["config"]["options"]) == ("mine", {"hurry": True})
    del sys.modules["my_methods_of_a_test"]
    methods.protocol._FACTORIES.pop("mine")
    assert altmin("train", "--config", "run.toml", "--json", "c.json") == 0
    assert without_seconds(read("c.json")) == without_seconds(first)
    needed = ["--set", "mine.hurry=false"]
    assert altmin(*COMPARE, *imported, *needed, "--methods", "mine,adam", "--json", "d.json") == 0
    assert read("d.json")["methods"] == ["mine", "adam"]
    capsys.readouterr()
    assert altmin(*mine) == 2
    assert "method 'mine' needs its option hurry; give it by --set hurry=VALUE" in capsys.readouterr().err
    assert altmin(*TRAIN, "--import", "my_method_of_a_test") == 2
    assert "there is no module my_method_of_a_test to import; give mymethods" in capsys.readouterr().err


def test_where_results_go_is_no_setting_of_a_run(altmin: Any) -> None:
    assert altmin(*TRAIN, "--json", "a.json", "--checkpoint", "kept", "--save-config", "run.toml") == 0
    saved = tomllib.loads(Path("run.toml").read_text())
    assert not {"json", "checkpoint", "resume", "config", "save_config"} & set(saved)
    assert {"seed", "threads", "adam"} <= set(saved)


@pytest.mark.parametrize(
    "text, words",
    [
        ("epochs = ", "run.toml cannot be read as TOML"),
        ("epoch = 3", "unknown setting in run.toml, 'epoch'; did you mean 'epochs'?"),
        ('epochs = "many"', "option epochs of run.toml takes a whole number, not 'many'"),
        ("epochs = true", "option epochs of run.toml takes a whole number, not True"),
        ("import = 'os'", "option import of run.toml takes a list, not 'os'"),
        ("import = ['o_s']", "there is no module o_s to import"),
        ("epochs = 0", "option epochs of run.toml cannot be 0"),
        ("model = 1979-05-27", "option model of run.toml takes a word, not datetime.date(1979, 5, 27)"),
        ("data_dir = 3", "option data_dir of run.toml takes a word, not 3"),
        ("batch-size = 3\nbatch_size = 4", "run.toml gives batch_size twice"),
        ("lr = 0.1", "run.toml gives lr, an option of a method, outside a table of its own"),
        ("[am-adm]\nlr = 1", "unknown method in run.toml, 'am-adm'; did you mean 'am-adam'?"),
        ("[adam]\nrate = 1", "unknown option of method 'adam' in run.toml, 'rate'"),
        ('[adam]\nlr = "fast"', "option lr of method 'adam' in run.toml takes a number, not 'fast'"),
        ('[am-adam]\ncodes = "discret"', "unknown codes of method 'am-adam' in run.toml, 'discret'; did you mean"),
        ("[epochs]\nmany = 3", "option epochs of run.toml takes a whole number, not {'many': 3}"),
        ("config = 'other.toml'", "unknown setting in run.toml, 'config'"),
    ],
)
def test_a_mistake_in_a_file_is_named_in_one_line(
    altmin: Any, text: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("run.toml").write_text(text)
    assert altmin("train", "--config", "run.toml", "--json", "run.json") == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
    assert os.listdir() == ["run.toml"]


def test_a_list_may_stand_for_words_between_commas(altmin: Any) -> None:
    Path("run.toml").write_text("eval-batches = [1, 3]\n")
    assert altmin(*TRAIN, "--config", "run.toml", "--json", "run.json") == 0
    assert [row["batch"] for row in read("run.json")["batches"]] == [1, 3]


VALUES = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=8,
)


@given(VALUES)
def test_what_is_written_is_read_again(value: Any) -> None:
    assert tomllib.loads(f"value = {toml(value)}") == {"value": value}


def test_what_toml_cannot_hold_is_refused() -> None:
    with pytest.raises(ValueError, match="numbers, texts and lists, not <object"):
        toml(object())
