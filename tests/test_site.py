"""The site is built strictly; every document and every public name is in it, and every link leads somewhere in it."""

import inspect
import posixpath
import re
import sys
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urlsplit

import pytest
from built_site import ROOT, build, built, pages

import altmin
import altmin.paper.theory
import altmin.runners
import altmin.sklearn
import altmin.stream

DOCUMENTS = sorted(path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/**/*.md"))
NAV = re.findall(r"^ +- [^#]*?: (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
PACKAGES = (
    *(altmin, altmin.methods, altmin.models, altmin.data, altmin.training, altmin.runners, altmin.paper.theory),
    *(altmin.sklearn, altmin.stream, altmin.continual),
)
HTML = (
    "a article aside body br button canvas circle code details div em figcaption figure footer form g h1 h2 h3 h4 h5 "
    "h6 head header hr html iframe img input label li link main meta nav ol option output p path pre rect script "
    "select small span strong style summary sup svg table tbody td th thead title tr ul"
)


def outside(link: str) -> bool:
    return urlsplit(link).scheme in ("http", "https", "mailto", "data")


def target(page: str, link: str) -> tuple[str, str]:
    """The file of the site that a link of a page leads to, and the place in it."""
    parts = urlsplit(link)
    path = posixpath.normpath(posixpath.join(posixpath.dirname(page), unquote(parts.path))) if parts.path else page
    return path, unquote(parts.fragment)


def test_every_document_is_in_the_navigation() -> None:
    notebooks = {path.with_suffix(".md").name for path in ROOT.glob("docs/*.ipynb")}
    assert set(DOCUMENTS) | notebooks == set(NAV), "add the page to nav in mkdocs.yml: one line"
    assert len(NAV) == len(set(NAV))


def test_every_public_name_is_in_the_reference() -> None:
    ids = {each for name, page in pages().items() if name.startswith("api/") for each in page.ids}
    missing = []
    for package in PACKAGES:
        for name in package.__all__:
            value = getattr(package, name)
            if isinstance(value, ModuleType):
                shown = f"api/{name}.html" in pages()
            else:  # `altmin.fit` is `altmin.training.fit`; `altmin.models.gpt` is in a module of its own name
                places = {f"{each.__name__}.{name}" for each in PACKAGES if getattr(each, name, None) is value}
                shown = bool(ids & {f"{place}.{name}" if place in sys.modules else place for place in places})
            if not shown:
                missing.append(f"{package.__name__}.{name}")
    assert not missing, "add `::: NAME` to a page in docs/api/"


def test_a_page_of_the_reference_has_signature_docstring_and_doctest() -> None:
    text = re.sub(r"<[^>]+>", "", (built() / "api/trainer.html").read_text())
    assert "increment: float = 0.2" in re.sub(r"\s+", " ", text)
    first = (inspect.getdoc(altmin.AltMin) or "").splitlines()[0]
    assert first in text
    assert "&gt;&gt;&gt; mu.end_epoch(); mu.value" in text.replace(" ", " ")


def test_every_link_leads_to_a_page_and_a_place_in_it() -> None:
    dead = []
    for name, page in pages().items():
        for link in page.links:
            if outside(link):
                continue
            path, place = target(name, link)
            known = pages().get(path)
            if not (built() / path).is_file() or (place and known and place not in known.ids):
                dead.append(f"{name}: {link}")
    assert not dead


def test_nothing_is_loaded_from_elsewhere_and_all_that_is_loaded_is_there() -> None:
    loads = {(name, link) for name, page in pages().items() for link in page.loads if not link.startswith("data:")}
    assert not [link for _, link in loads if outside(link) or link.startswith("//")]
    assert not [(name, link) for name, link in loads if not (built() / target(name, link)[0]).is_file()]
    styles = "".join(path.read_text() for path in built().rglob("*.css"))
    assert not re.findall(r"url\([\"']?(?:https?:)?//[^)]*\)", styles)


def test_a_formula_is_never_taken_for_a_tag() -> None:
    strange = {name: page.tags - set(HTML.split()) for name, page in pages().items()}
    assert not {name: tags for name, tags in strange.items() if tags}


def test_a_link_to_a_source_file_leads_to_its_text() -> None:
    assert "source/altmin/core/step.py.html" in {target("tour.html", link)[0] for link in pages()["tour.html"].links}
    text = re.sub(r"<[^>]+>", "", (built() / "source/altmin/core/step.py.html").read_text())
    assert (ROOT / "altmin/core/step.py").read_text().splitlines()[0].strip('"') in text


def test_the_notebook_is_a_page_with_its_code_and_what_it_printed() -> None:
    text = (built() / "from-scratch.html").read_text()
    assert "largest difference of a weight" in text
    assert 'src="data:image/png;base64,' in text
    assert (built() / "from-scratch.ipynb").is_file()


def test_a_dead_link_or_an_unknown_name_fails_the_build(tmp_path: Path) -> None:
    """The settings of the site, with a page that has one of each."""
    pytest.importorskip("material")
    lines = ["# Small", "[gone](missing.md)", "[no place](other.md#nowhere)", "[k][Nothing]"]
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/index.md").write_text("\n\n".join(lines))
    (tmp_path / "docs/other.md").write_text("# Other\n")
    keep = {"theme", "plugins", "markdown_extensions", "validation"}
    whole = (ROOT / "mkdocs.yml").read_text()
    parts = re.split(r"^(?=\w+:)", whole, flags=re.MULTILINE)
    config = "site_name: small\n" + "".join(part for part in parts if part.partition(":")[0] in keep)
    config = re.sub(r"^  (logo|favicon): .*\n", "", config, flags=re.MULTILINE)
    (tmp_path / "mkdocs.yml").write_text(config.replace("docs/docstrings.py", str(ROOT / "docs/docstrings.py")))
    done = build(tmp_path / "site", tmp_path / "mkdocs.yml")
    assert done.returncode != 0
    for complaint in ("'missing.md'", "'#nowhere'", "'Nothing'"):
        assert complaint in done.stderr
