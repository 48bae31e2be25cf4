"""The site is built strictly, has every document and every public name, and loads nothing from elsewhere; the notebook
runs."""

import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import altmin
import altmin.continual
import altmin.runners
import altmin.sklearn
import altmin.stream

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted(path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/**/*.md"))
NAV = re.findall(r"^ +- [^#]*?: (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
PACKAGES = (
    *(altmin, altmin.methods, altmin.models, altmin.data, altmin.training, altmin.runners),
    *(altmin.sklearn, altmin.stream, altmin.continual),
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site: a dead link or an unknown name fails the strict build."""
    pytest.importorskip("material")
    pytest.importorskip("mkdocstrings_handlers.python")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def test_every_document_is_in_the_navigation() -> None:
    notebooks = {path.with_suffix(".md").name for path in ROOT.glob("docs/*.ipynb")}
    pages = {f"source/{path.relative_to(ROOT)}" for path in ROOT.glob("reproduction/**/*.md")}
    assert set(DOCUMENTS) | notebooks | pages == set(NAV), "add the page to nav in mkdocs.yml: one line"


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    ids = {name for page in site.glob("api/*.html") for name in re.findall(r'id="(altmin[\w.]*)"', page.read_text())}
    missing = []
    for package in PACKAGES:
        for name in package.__all__:
            value = getattr(package, name)
            if isinstance(value, ModuleType):
                shown = (site / f"api/{name}.html").is_file()
            else:  # `altmin.fit` is `altmin.training.fit`; `altmin.models.gpt` is in a module of its own name
                places = {f"{each.__name__}.{name}" for each in PACKAGES if getattr(each, name, None) is value}
                shown = bool(ids & {f"{place}.{name}" if place in sys.modules else place for place in places})
            if not shown:
                missing.append(f"{package.__name__}.{name}")
    assert not missing, "add `::: NAME` to a page in docs/api/"


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    pages = "".join(path.read_text() for path in site.rglob("*.html"))
    loads = re.findall(r'<(?:img|script|iframe)[^>]* src="([^"]+)"|<link[^>]*stylesheet[^>]* href="([^"]+)"', pages)
    assert not [link for pair in loads for link in pair if re.match("https?:|//", link)]
    assert not re.findall(r"url\([\"']?(?:https?:)?//", "".join(path.read_text() for path in site.rglob("*.css")))


def test_the_notebook_runs_and_its_outputs_are_saved(tmp_path: Path) -> None:
    """It ends with an assertion that the algorithm written there and altmin give the same weights."""
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    notebook = nbformat.read(ROOT / "docs/from-scratch.ipynb", as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    saved = [_printed(cell) for cell in code]
    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert saved == [_printed(cell) for cell in code], "save the notebook with its outputs"


def _printed(cell: Any) -> list[str]:
    """The first word of each line that a cell prints: numbers differ between machines."""
    texts = [output.text for output in cell.outputs if output.output_type == "stream" and output.name == "stdout"]
    return [line.split()[0] for line in "".join(texts).splitlines() if line]
