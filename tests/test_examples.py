"""examples/: each job runs, is short, and is about as good as its plain version."""

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from altmin.methods import protocol
from reproduction.measurements.examples import JOBS

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted((ROOT / "examples").glob("*.py"))
Load = Callable[[str], Any]
LEAST = {"tied": 0.28, "drift": 0.6, "two_towers": 0.75, "table_search": 0.75, "csv_file": 0.75}
"""What has to be reached; elsewhere 0.8. Chance is far below: 0.15, the blank, for text, and a half for two classes."""
NOISE = 0.05
NEEDS = {"drift": ("river",), "hugging_face": ("transformers", "accelerate")}
"""What may be missing, beside scikit-learn and pandas."""


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """Imports a module of examples/; other tests do not see it, nor the methods it registers."""
    before = set(sys.modules)
    monkeypatch.setattr(protocol, "_FACTORIES", dict(protocol._FACTORIES))
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(f"{ROOT}/examples"):
            del sys.modules[name]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_an_example_has_at_most_40_lines(file: Path) -> None:
    assert len(file.read_text().splitlines()) <= 40


def test_every_job_has_a_plain_version_and_is_measured() -> None:
    assert {file.stem for file in FILES} == {name + end for name in JOBS for end in ("", "_plain")}


def score(name: str, load: Load) -> float:
    for library in ("sklearn", "pandas", *NEEDS.get(name.removesuffix("_plain"), ())):
        pytest.importorskip(library)
    with torch.random.fork_rng():
        return float(load(name).main(0))


EVERY_JOB = pytest.mark.parametrize("name", [file.stem for file in FILES if not file.stem.endswith("_plain")])


@EVERY_JOB
@pytest.mark.filterwarnings("ignore")
def test_an_example_does_its_job_and_leaves_nothing_behind(
    name: str, load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert score(name, load) > LEAST.get(name, 0.8)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@EVERY_JOB
@pytest.mark.filterwarnings("ignore")
def test_an_example_is_as_good_as_its_plain_version(name: str, load: Load) -> None:
    assert score(name, load) > score(f"{name}_plain", load) - NOISE
