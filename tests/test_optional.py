"""What only some parts need is imported there alone, and named in one sentence where it is missing."""

import importlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from commands import COMPARE, TRAIN, made_up  # noqa: F401  (a fixture)
from report_cases import folders

import altmin
from altmin.cli import run
from altmin.common.optional import need

PROJECT = tomllib.loads((Path(__file__).resolve().parent.parent / "pyproject.toml").read_text())["project"]
OPTIONAL = (
    *("matplotlib", "optuna", "jinja2", "sklearn", "scipy", "pandas", "river", "pyarrow"),
    *("lightning", "skorch", "transformers", "tensorboard", "pytorch_optimizer"),
)
NEEDED = [
    ("altmin.sklearn", "sklearn", "scikit-learn", '"altmin[sklearn]"'),
    ("altmin.stream", "river", "river", '"altmin[stream]"'),
    ("altmin.integrations.lightning", "lightning", "lightning", "lightning"),
    ("altmin.integrations.skorch", "skorch", "skorch", "skorch"),
    ("altmin.integrations.transformers", "transformers", "transformers", '"altmin[examples]"'),
]
"""Module, what it imports, what that is called, and what to install."""


def test_importing_the_package_its_command_line_and_its_figures_imports_nothing_optional() -> None:
    code = (
        "import sys; from altmin.cli import run\n"
        "assert run(['search']) == run(['train', '--help']) == run(['--version']) == 0\n"
        f"print([name for name in {OPTIONAL} if name in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "Example: altmin train" in shown
    assert shown.endswith(f"altmin {altmin.__version__}\n[]\n")


@pytest.mark.parametrize("module, imported, library, install", NEEDED)
def test_a_module_whose_library_is_missing_says_what_to_install(
    module: str, imported: str, library: str, install: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name == module or name.startswith(f"{module}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, imported, None)
    with pytest.raises(ModuleNotFoundError) as error:
        importlib.import_module(module)
    assert str(error.value) == f"{module} needs {library}, which is not installed: pip install {install}"


def test_a_library_that_is_installed_and_broken_is_not_called_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "half_installed.py").write_text("import no_such_part")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="No module named 'no_such_part'"):
        need("half_installed", "plot")


def test_every_extra_that_is_named_exists_and_brings_the_library() -> None:
    given = {"": PROJECT["dependencies"], **PROJECT["optional-dependencies"]}
    names = {extra: {re.split("[<>]", each)[0] for each in each_one} for extra, each_one in given.items()}
    assert names[""] == {"torch", "numpy", "safetensors", "typer", "rich"}
    assert names["plot"] == {"matplotlib"}
    assert names["paper"] == {"altmin[plot]", "optuna", "jinja2"}
    assert (names["sklearn"], names["stream"], names["higgs"]) == ({"scikit-learn"}, {"river"}, {"pyarrow"})


def test_public_names_are_listed_and_packages_are_imported_when_first_used(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {"AltMin", "fit", "sklearn", "stream", "paper", "integrations"} <= set(dir(altmin))
    assert not {"startup", "core", "common", "import_module"} & set(dir(altmin))
    monkeypatch.delattr(altmin, "stream", raising=False)
    assert altmin.stream is importlib.import_module("altmin.stream")
    with pytest.raises(AttributeError, match="module 'altmin' has no attribute 'streams'"):
        altmin.streams  # noqa: B018


def test_an_attribute_whose_library_is_missing_says_so_and_can_be_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("altmin.stream")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr(altmin, "stream", raising=False)
    monkeypatch.setitem(sys.modules, "river", None)
    assert not hasattr(altmin, "stream")
    with pytest.raises(AttributeError, match=r"altmin\.stream needs river, which is not installed"):
        altmin.stream  # noqa: B018


@pytest.mark.usefixtures("made_up")
def test_without_any_of_them_commands_train_and_refuse_what_they_cannot_draw_before_they_train(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in OPTIONAL:
        monkeypatch.setitem(sys.modules, name, None)
    assert run(TRAIN) == 0
    assert run(COMPARE) == 0
    (tmp_path / "made").mkdir()
    figures, results = map(str, folders(tmp_path / "made"))
    capsys.readouterr()
    for command in ([*COMPARE, "--plot", "a.png", "--json", "a.json"], ["reproduce", "small", "--figures", figures]):
        assert run([*command, *(["--results", "new"] if command[0] == "reproduce" else [])]) == 2
        said = 'altmin: a picture needs matplotlib, which is not installed: pip install "altmin[plot]"\n'
        assert capsys.readouterr().err == said
    assert not list(Path().glob("a.*"))
    assert not list(Path("new").glob("*"))
    assert run(["report", "--figures", figures, "--results", results]) == 2
    said = 'altmin: the report needs jinja2, which is not installed: pip install "altmin[paper]"\n'
    assert capsys.readouterr().err == said
