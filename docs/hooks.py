"""What the site needs beyond mkdocs: pages that stand elsewhere, and links to them.

The documents are read in the repository too, so they link to files by their place there, ../altmin/core/step.py. Such
a link leads to a copy of the file on the site, under source/: Python as a page of code, Markdown as a page, a folder as
a list of its files, anything else as it is. A notebook docs/NAME.ipynb becomes the page NAME.md.
"""

import ast
import json
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)\s#]+)(#[^)\s]*)?(?=\))")
IMAGE = "image/png"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds a page for each notebook, and for each file outside of docs/ that a document links to."""
    waiting: list[tuple[str, str]] = []
    for file in files.documentation_pages():
        waiting.append((f"docs/{file.src_uri}", file.content_string))
    for path in sorted(ROOT.glob("docs/*.ipynb")):
        text = notebook(json.loads(path.read_text()), path.name)
        files.append(File.generated(config, f"{path.stem}.md", content=text))
        waiting.append((f"docs/{path.name}", text))
    seen: set[str] = set()
    while waiting:
        place, text = waiting.pop()
        for found in LINK.finditer(text):
            target = posixpath.normpath(posixpath.join(posixpath.dirname(place), found[1]))
            if target in seen or target.startswith("docs/") or not (ROOT / target).exists():
                continue
            seen.add(target)
            file = elsewhere(target, config)
            files.append(file)
            if target.endswith(".md"):
                waiting.append((target, file.content_string))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links lead to where things stand on the site; `<!-- include FILE -->` becomes the file."""
    here = page.file.src_uri
    place = here.removeprefix("source/") if here.startswith("source/") else f"docs/{here}"

    def link(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(place), found[1]))
        return posixpath.relpath(site_path(target), posixpath.dirname(here) or ".") + (found[2] or "")

    markdown = re.sub(r"<!-- include (\S+) -->", lambda found: (ROOT / "docs" / found[1]).read_text().strip(), markdown)
    return LINK.sub(link, markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Every picture is a link to itself: a phone shows it small."""
    return re.sub(r'<img [^>]*src="(?!data:)([^"]+)"[^>]*>', r'<a href="\1">\g<0></a>', html)


def site_path(target: str) -> str:
    """Where a file of the repository stands among the pages of the site."""
    if target.startswith("docs/"):
        return target.removeprefix("docs/").replace(".ipynb", ".md")
    path = ROOT / target
    if path.is_dir():
        return f"source/{target}/index.md"
    return f"source/{target}.md" if path.suffix == ".py" or not path.suffix else f"source/{target}"


def elsewhere(target: str, config: MkDocsConfig) -> File:
    """A file outside of docs/ as a file of the site."""
    path, name = ROOT / target, site_path(target)
    if not name.endswith(".md"):
        return File.generated(config, name, abs_src_path=str(path))
    if path.is_dir():
        text = f"# {target}/\n\n" + "\n".join(f"- `{each.name}`{_summary(each)}" for each in _files(path)) + "\n"
    elif path.suffix == ".md":
        return File.generated(config, name, content=path.read_text())
    else:
        text = f"# {target}\n\n```{'python' if path.suffix == '.py' else 'text'}\n{path.read_text().rstrip()}\n```\n"
    return File.generated(config, name, content=f"---\nsearch:\n  exclude: true\nhide: [toc]\n---\n{text}")


def notebook(cells: dict[str, Any], name: str) -> str:
    """A notebook as Markdown: its text, its code, and what the code gave when it was saved."""
    parts = []
    for cell in cells["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        printed = ""
        for output in cell["outputs"]:
            data = output.get("data", {})
            if IMAGE in data:
                picture = "".join(data[IMAGE]).replace("\n", "")
                parts.append(f"![What the cell above draws](data:{IMAGE};base64,{picture})")
            else:
                printed += "".join(output.get("text", data.get("text/plain", "")))
        if printed:
            parts.append(f"```text\n{printed.rstrip()}\n```")
    return "\n\n".join([*parts[:1], f'<a href="{name}" download>The notebook itself</a>', *parts[1:]]) + "\n"


def _files(folder: Path) -> list[Path]:
    return sorted(each for each in folder.iterdir() if each.name[0] not in "._")


def _summary(path: Path) -> str:
    """The first line of a Python file's docstring."""
    if path.is_dir():
        path = path / "__init__.py"
    text = ast.get_docstring(ast.parse(path.read_text())) if path.suffix == ".py" and path.is_file() else None
    return f": {text.splitlines()[0]}".replace("[", "\\[") if text else ""
