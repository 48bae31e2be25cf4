"""How the site is made of the documents: notebooks and source files as pages, docstrings as Markdown; and the notebook
runs."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOK = ROOT / "docs/from-scratch.ipynb"


def load(name: str) -> Any:
    """docs/NAME.py, which is no part of a package."""
    spec = importlib.util.spec_from_file_location(f"site_{name}", ROOT / f"docs/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def hooks() -> Any:
    pytest.importorskip("mkdocs")
    return load("hooks")


@pytest.fixture(scope="module")
def docstrings() -> Any:
    pytest.importorskip("griffe")
    return load("docstrings")


def test_a_notebook_becomes_text_code_prints_in_one_and_pictures(hooks: Any) -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "text"]},
        {
            "cell_type": "code",
            "source": "1 + 1",
            "outputs": [
                {"output_type": "stream", "text": ["a\n"]},
                {"output_type": "stream", "text": "b\n"},
                {"output_type": "display_data", "data": {"image/png": "iVBO\nRw0K"}},
            ],
        },
    ]
    text = hooks.notebook({"cells": cells}, "small.ipynb")
    assert text.startswith("# Title\ntext\n\n")
    assert "```python\n1 + 1\n```" in text
    assert "```text\na\nb\n```" in text
    assert "(data:image/png;base64,iVBORw0K)" in text
    assert '<a href="small.ipynb" download>' in text


def test_a_docstring_keeps_its_formulas_and_its_doctests(docstrings: Any) -> None:
    text = "The product <u, v>; see `<b>`.\n\n    a = <u, v>\n\n>>> 1 < 2\nTrue\n\nAnd <u, v> again."
    found = docstrings.as_markdown(text)
    assert "The product &lt;u, v>; see `<b>`." in found
    assert "    a = <u, v>" in found
    assert "```pycon\n>>> 1 < 2\nTrue\n```" in found
    assert found.endswith("And &lt;u, v> again.")


def test_a_docstring_shows_the_names_of_arguments_as_code(docstrings: Any) -> None:
    text = "Moves it: all.\n\nlr,\neps: as in torch. share: how much.\nrest: the others. Note: no argument."
    found = docstrings.with_names(text, {"lr", "eps", "share", "rest"})
    assert found == (
        "Moves it: all.\n\n`lr`,\n`eps`: as in torch. `share`: how much.\n`rest`: the others. Note: no argument."
    )


def test_the_notebook_runs_and_its_kept_outputs_are_whole(tmp_path: Path) -> None:
    """It ends with an assertion that the algorithm written there and altmin give the same weights."""
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert len(code) <= 10
    kept = [_printed(cell) for cell in code]
    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    for cell, before in zip(code, kept, strict=True):
        words = [line.split()[:1] for line in _printed(cell).splitlines()]
        assert words == [line.split()[:1] for line in before.splitlines()], "save the notebook with its outputs"
    assert any("image/png" in output.get("data", {}) for output in code[-2].outputs)
    assert "/tmp" not in json.dumps(json.loads(NOTEBOOK.read_text()))


def _printed(cell: Any) -> str:
    return "".join(output.text for output in cell.outputs if output.output_type == "stream" and output.name == "stdout")
