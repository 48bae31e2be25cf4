"""What people install and import: the archives, the public names, and libraries that are optional."""

import importlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import smoke

import altmin
from altmin.cli import COMMANDS, run
from altmin.common.optional import need

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OPTIONAL = ("matplotlib", "sklearn", "scipy", "pandas", "river", "pyarrow", "lightning", "skorch", "transformers")
NEEDED = [
    ("altmin.sklearn", "sklearn"),
    ("altmin.stream", "river"),
    ("altmin.integrations.lightning", "lightning"),
    ("altmin.integrations.skorch", "skorch"),
    ("altmin.integrations.transformers", "transformers"),
]
"""A module and the library that it imports."""
BUILD = (
    "import sys; from setuptools import build_meta\n"
    "print({'sdist': build_meta.build_sdist, 'wheel': build_meta.build_wheel}[sys.argv[1]](sys.argv[2]))"
)


def python(code: str, *arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, **options)  # type: ignore[call-overload, no-any-return]


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The source archive and the wheel made of it, where torch cannot be imported."""
    pytest.importorskip("setuptools", minversion="77")
    folder = tmp_path_factory.mktemp("release")
    source = folder / "source"
    for part in ("altmin", "tests/fuzz", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"):
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, source / part, ignore=shutil.ignore_patterns("__pycache__"))
        elif (ROOT / part).exists():
            shutil.copy(ROOT / part, source / part)
    (folder / "torch.py").write_text("raise ImportError('a build needs no torch')")
    environment = {**os.environ, "PYTHONPATH": str(folder)}

    def build(kind: str, place: Path) -> Path:
        made = python(BUILD, kind, str(folder), cwd=place, env=environment)
        assert made.returncode == 0, made.stderr
        return folder / made.stdout.splitlines()[-1]

    sdist = build("sdist", source)
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (unpacked,) = (folder / "unpacked").iterdir()
    return sdist, build("wheel", unpacked)


def test_the_wheel_holds_the_package_and_nothing_else(archives: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(archives[1]) as archive:
        names = {n for n in archive.namelist() if not n.endswith("/") and ".dist-info/" not in n}
    files = [path for path in (ROOT / "altmin").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert names == {path.relative_to(ROOT).as_posix() for path in files}


def test_the_unpacked_wheel_passes_the_smoke_test(archives: tuple[Path, Path], tmp_path: Path) -> None:
    site, empty = tmp_path / "site", tmp_path / "empty"
    with zipfile.ZipFile(archives[1]) as archive:
        archive.extractall(site)
    empty.mkdir()
    script = [sys.executable, str(ROOT / "tests/smoke.py"), "installed", "learns"]
    done = subprocess.run(
        script, cwd=empty, env={**os.environ, "PYTHONPATH": str(site)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_the_smoke_test_refuses_the_source_itself() -> None:
    with pytest.raises(AssertionError):
        smoke.installed()


def test_the_version_is_three_numbers_and_perhaps_a_mark_that_it_is_not_released() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev0|rc\d+)?", altmin.__version__)
    assert altmin.__version__.endswith(".dev0") == ("## [Unreleased]" in (ROOT / "CHANGELOG.md").read_text())


@pytest.mark.parametrize("words", [["--help"], [], ["--version"], ["trian"]])
def test_help_does_not_import_torch(words: list[str]) -> None:
    assert (
        python(f"import sys; from altmin.cli import run; run({words}); sys.exit('torch' in sys.modules)").returncode
        == 0
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([name, "--help"]) == 0
    assert f"Example: altmin {name}" in " ".join(capsys.readouterr().out.split())


def test_every_public_name_is_there() -> None:
    names: dict[str, object] = {}
    exec("from altmin import *", names)
    assert set(altmin.__all__) <= set(names)
    assert {"AltMin", "fit", "sklearn", "stream", "integrations", "optim"} <= set(dir(altmin))
    with pytest.raises(AttributeError):
        altmin.AltMan  # type: ignore[attr-defined]  # noqa: B018


def test_names_are_imported_when_first_used() -> None:
    code = "import altmin; altmin.layers.Sign, altmin.runners, altmin.core.trainer.AltMin, altmin.stream"
    assert python(code).returncode == 0


def test_importing_the_library_and_its_commands_imports_nothing_optional() -> None:
    code = "import sys, altmin; altmin.fit; from altmin.cli import run; run(['train', '--help']); print(*sys.modules)"
    assert not set(OPTIONAL) & set(python(code).stdout.split())


@pytest.mark.parametrize("module, library", NEEDED)
def test_a_library_that_is_missing_is_named(module: str, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name == module or name.startswith(f"{module}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ModuleNotFoundError, match="pip install"):
        importlib.import_module(module)


def test_a_library_that_is_installed_but_broken_is_not_called_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "half_installed.py").write_text("import no_such_part")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_part"):
        need("half_installed", "plot")


def test_few_packages_are_required() -> None:
    required = {re.split("[<>]", each)[0] for each in PROJECT["dependencies"]}
    assert required <= {"torch", "numpy", "typer", "rich"}
