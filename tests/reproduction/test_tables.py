"""Documents quote the committed results, in tables of one registry."""

import re
import subprocess
import sys

import pytest

from reproduction.__main__ import run
from reproduction.tables import ROOT, documents, filled, markdown, shown, table, tables


def test_documents_quote_the_results(capsys: pytest.CaptureFixture[str]) -> None:
    """If not: `python -m reproduction tables` fills them."""
    assert run(["tables", "--check"]) == 0, capsys.readouterr().out


def test_readme_has_no_number_of_its_own() -> None:
    made = r"<!-- table: .*?<!-- end -->|```.*?```|Python 3.11|SA 3.0"
    text = re.sub(made, "", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    assert re.findall(r"\d+\.\d+|\d+ ?%", text) == []


def test_verify_names_documents_that_differ_from_the_results(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["verify"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[:19]] == [f"C{n}" for n in range(1, 20)]
    monkeypatch.setitem(tables(), "readme", lambda: "other")
    assert run(["verify"]) == 1
    assert "README.md differs from the results" in capsys.readouterr().out


def test_every_table_stands_in_a_document() -> None:
    assert {name for path in documents() for name in shown(path.read_text())} == set(tables())


def test_a_place_is_filled_and_the_rest_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reproduction.tables._TABLES", dict(tables()))
    table("two.rows")(lambda: "\n" + markdown(["a"], [["1"], ["2"]]) + "\n\n")
    text = "before\n<!-- table: two.rows -->\nold\n<!-- end -->\n| not | touched |\n"
    expected = "before\n<!-- table: two.rows -->\n| a |\n| --- |\n| 1 |\n| 2 |\n<!-- end -->\n| not | touched |\n"
    assert filled(text) == expected
    assert filled(expected) == expected


def test_figures_and_tables_need_no_library_of_a_single_measurement() -> None:
    code = "import sys; from reproduction.tables import tables; tables(); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"river", "sklearn", "optuna", "torch._dynamo"} & set(loaded)
