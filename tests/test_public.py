"""The package's names: all there, each imported when it is first used, and not before."""

import subprocess
import sys
from typing import Any

import pytest

import altmin
from altmin.cli import COMMANDS, run


@pytest.mark.parametrize("words", [["--help"], [], ["--version"], ["trian"]])
def test_the_first_help_waits_for_no_import_of_torch(words: list[str]) -> None:
    program = f"import sys; from altmin.cli import run; run({words}); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=False).returncode == 0


def test_a_name_is_found_whichever_comes_first() -> None:
    program = (
        "import altmin.training.trial, altmin; from altmin import AltMin, fit, data; assert altmin.AltMin is AltMin"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_every_public_name_is_there_and_is_listed() -> None:
    found: dict[str, Any] = {}
    exec("from altmin import *", found)
    assert set(altmin.__all__) <= set(found)
    assert {*altmin.__all__, "sklearn", "stream", "paper", "optim", "integrations"} == set(dir(altmin))
    assert all(getattr(altmin, name) is found[name] for name in altmin.__all__)


def test_every_module_is_an_attribute_though_it_was_not_imported() -> None:
    program = "import altmin; altmin.layers.Sign, altmin.runners, altmin.core.trainer.AltMin, altmin.explaining"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_another_name_is_an_attribute_error_of_the_package() -> None:
    with pytest.raises(AttributeError, match="module 'altmin' has no attribute 'AltMan'"):
        altmin.AltMan  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_every_command_and_flags_without_a_value(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    assert f" {name} " in capsys.readouterr().out
    assert run([name, "--help"]) == 0
    shown = capsys.readouterr().out.lower()
    assert "<bool" not in shown
    assert " ".join(f"Example: {COMMANDS[name][1]}".lower().split()) in " ".join(shown.split())
