"""What a release consists of: the wheel, the source archive, their version, and the names that are promised."""

import contextlib
import os
import pkgutil
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest
import smoke
import typer

import altmin
from altmin.cli import app

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PARTS = ("altmin", "pyproject.toml", "MANIFEST.in", "README.md", "CHANGELOG.md", "LICENSE")
PAGE = (ROOT / "docs/releases.md").read_text()
CODE = (
    "import sys; from setuptools import build_meta\n"
    "print({'sdist': build_meta.build_sdist, 'wheel': build_meta.build_wheel}[sys.argv[1]](sys.argv[2]))"
)


def make(kind: str, source: Path, folder: Path) -> Path:
    """The archive of this kind that setuptools makes of a folder, where torch cannot be imported."""
    without = folder / "without"
    without.mkdir(parents=True, exist_ok=True)
    (without / "torch.py").write_text("raise ImportError('a build needs no torch')")
    given = {"cwd": source, "env": {**os.environ, "PYTHONPATH": str(without)}, "capture_output": True, "text": True}
    run = subprocess.run([sys.executable, "-c", CODE, kind, str(folder)], **given)
    assert run.returncode == 0, run.stderr
    return folder / run.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The source archive, the wheel made of it, and the wheel made of the folder itself."""
    pytest.importorskip("setuptools", minversion="77")
    folder = tmp_path_factory.mktemp("release")
    source = folder / "source"
    source.mkdir()
    for part in PARTS:
        copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
        copy(ROOT / part, source / part)
    (source / "tests").mkdir()
    (source / "tests/test_none.py").write_text("")  # setuptools would take it
    sdist = make("sdist", source, folder / "sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (unpacked,) = (folder / "unpacked").iterdir()
    wheels = {"wheel": make("wheel", unpacked, folder / "a"), "direct": make("wheel", source, folder / "b")}
    return {"sdist": sdist, **wheels}


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}


def metadata(wheel: Path) -> Message:
    (text,) = [data for name, data in contents(wheel).items() if name.endswith("METADATA")]
    return Parser().parsestr(text.decode())


def test_the_wheel_holds_the_package_whole_and_nothing_else(archives: dict[str, Path]) -> None:
    found = {name for name in contents(archives["wheel"]) if ".dist-info/" not in name}
    files = [path for path in (ROOT / "altmin").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert found == {path.relative_to(ROOT).as_posix() for path in files}


def test_the_wheel_of_the_source_archive_is_that_of_the_folder(archives: dict[str, Path]) -> None:
    assert contents(archives["wheel"]) == contents(archives["direct"])


def test_the_source_archive_has_no_tests_which_need_a_clone(archives: dict[str, Path]) -> None:
    with tarfile.open(archives["sdist"]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", "altmin/py.typed"} <= names
    assert not [name for name in names if name.startswith("tests")]


def test_the_metadata_are_the_projects_and_the_version_is_the_packages(archives: dict[str, Path]) -> None:
    found = metadata(archives["wheel"])
    assert found["Version"] == altmin.__version__
    assert found["Requires-Python"] == PROJECT["requires-python"]
    required = [each for each in found.get_all("Requires-Dist", []) if "extra ==" not in each]
    assert sorted(required) == sorted(PROJECT["dependencies"])
    assert found.get_all("Classifier") == PROJECT["classifiers"]
    (entry,) = [text for name, text in contents(archives["wheel"]).items() if name.endswith("entry_points.txt")]
    assert "altmin = altmin.cli:main" in entry.decode()


def test_the_unpacked_wheel_passes_the_smoke_test_outside_the_repository(
    archives: dict[str, Path], tmp_path: Path
) -> None:
    site, empty = tmp_path / "site", tmp_path / "empty"
    with zipfile.ZipFile(archives["wheel"]) as archive:
        archive.extractall(site)
    empty.mkdir()
    script = [sys.executable, str(ROOT / "tests/smoke.py"), "installed", "learns"]
    run = subprocess.run(script, cwd=empty, env={**os.environ, "PYTHONPATH": str(site)}, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert "all is well" in run.stdout


def test_the_smoke_test_refuses_the_source_itself() -> None:
    with pytest.raises(AssertionError, match="is the source, not an installation"):
        smoke.installed()


# What is promised


def section(title: str) -> str:
    """The part of the page under a heading, without those below it that have one of their own rank."""
    (found,) = re.findall(rf"^## {title}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    return found


def names(title: str) -> list[str]:
    return re.findall(r"`altmin\.([\w.]+)", section(title))


def test_every_public_name_is_classified_once() -> None:
    classified = names("Stable") + names("Provisional")
    assert len(set(classified)) == len(classified)
    missing = set(altmin.__all__) - set(classified)
    assert not missing, f"say in docs/releases.md whether these are stable or provisional: {sorted(missing)}"


def test_every_classified_name_exists() -> None:
    for name in names("Stable") + names("Provisional"):
        with contextlib.suppress(ImportError):  # of a library that is not installed
            pkgutil.resolve_name("altmin." + re.sub(r"^(integrations\.\w+)\.", r"\1:", name))


def test_every_command_and_method_is_classified_once() -> None:
    commands = set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    for kind, every in (("Commands", commands), ("Methods", set(altmin.methods.names()))):
        lines = re.findall(rf"^- {kind}: (.*?)(?=^- |^$)", PAGE, re.DOTALL | re.MULTILINE)
        listed = [name for line in lines for name in re.findall(r"`(\w[\w-]*)`", line)]
        assert sorted(listed) == sorted(every), kind


def test_the_pythons_that_were_tried_are_those_that_are_declared() -> None:
    declared = [each.rpartition(" ")[2] for each in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", each)]
    assert re.findall(r"^\| (3\.\d+)\.\d+ \|", section("What was tried"), re.MULTILINE) == declared
    assert PROJECT["requires-python"] == f">={declared[0]}"


def test_the_version_is_three_numbers_and_perhaps_a_mark_that_it_is_not_yet_released() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev0|rc\d+)?", altmin.__version__)
    changes = (ROOT / "CHANGELOG.md").read_text()
    released = re.findall(r"^## \[(\d\S*)\]", changes, re.MULTILINE)
    if altmin.__version__.endswith(".dev0"):
        assert "## [Unreleased]" in changes
        assert altmin.__version__.removesuffix(".dev0") not in released
    else:
        assert released[0] == altmin.__version__
