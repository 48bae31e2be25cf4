"""What the documents show is what a type checker accepts: their Python under `mypy --strict`."""

import re
import subprocess
import sys
from pathlib import Path

from test_docs import DOCUMENTS, ROOT, blocks

FLAGS = (
    "--strict",
    "--allow-untyped-defs",
    "--allow-untyped-calls",
    "--no-warn-return-any",
    "--allow-redefinition-new",
    "--local-partial-types",
    "--ignore-missing-imports",
)


def page(name: str) -> str:
    """The Python blocks of a document, each in its own lines, as one module: they are executed one after the other."""
    lines: list[str] = []
    for language, first, text in blocks(name):
        if language == "python":
            lines += [""] * (first - 1 - len(lines)) + text.splitlines()
    return "\n".join([*lines, ""])


def complaints(pages: dict[str, str], folder: Path) -> list[str]:
    """What mypy says about pages, by their names, each with the page and the line."""
    names = {re.sub(r"\W", "_", name): name for name in pages}
    for stem, name in names.items():
        (folder / f"{stem}.py").write_text(pages[name])
    command = [sys.executable, "-m", "mypy", *FLAGS, "--cache-dir", str(ROOT / ".mypy_cache/documents")]
    files = [str(folder / f"{stem}.py") for stem in names]
    said = subprocess.run([*command, "--no-error-summary", *files], cwd=ROOT, capture_output=True, text=True)
    assert not said.stderr, said.stderr
    lines = [line for line in said.stdout.splitlines() if ": note:" not in line]
    return [re.sub(r"^\S*?(\w+)\.py(?=:)", lambda found: names.get(found[1], found[0]), line) for line in lines]


def test_the_python_of_all_documents_passes_mypy(tmp_path: Path) -> None:
    """Strictly, but for functions without annotations, which read better in a page that teaches, and torch's own, such
    as Tensor.split; the output of a module is Any. A later block may use a name again for something else. What should
    not pass is tried along."""
    pages = {name: page(name) for name in DOCUMENTS if name != "CHANGELOG.md"}
    wrong = "import altmin\n\naltmin.fit(epochs='two')\naltmin.models.mlp(2, (3,), 4).undefined\n"
    found = complaints({**{name: text for name, text in pages.items() if text.strip()}, "wrong.md": wrong}, tmp_path)
    noticed = [line for line in found if line.startswith("wrong.md:3:")]
    assert noticed
    assert not [line for line in found if not line.startswith("wrong.md:")]
