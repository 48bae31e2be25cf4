"""What the documents show works: their Python runs, their links lead somewhere, their commands exist."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.run import get_args_parser

import altmin
from altmin import calculus as maps
from altmin.cli import PROGRAM
from altmin.methods import protocol
from reproduction.__main__ import PROGRAM as MEASUREMENTS

ROOT = Path(__file__).resolve().parent.parent
FILES = [file for pattern in ("*.md", "docs/**/*.md", "reproduction/**/*.md") for file in sorted(ROOT.glob(pattern))]
DOCUMENTS = [str(file.relative_to(ROOT)) for file in FILES]
OPTIONAL = ("lightning", "skorch", "onnxruntime", "onnxscript", "onnx", "transformers", "accelerate")
EVERY_DOCUMENT = pytest.mark.parametrize("name", DOCUMENTS)


def blocks(name: str) -> list[tuple[str, int, str]]:
    """The code blocks of a document: language ("" if none is given, or the block is indented), first line, text."""
    found: list[tuple[str, int, str]] = []
    fence, was_code = False, False
    for number, line in enumerate((ROOT / name).read_text().splitlines(), 1):
        if line.startswith("```"):
            fence, was_code = not fence, False
            if fence:
                found.append((line[3:].strip(), number + 1, ""))
        elif fence or line.startswith("    "):
            if not fence and not was_code:
                found.append(("", number, ""))
            language, first, text = found[-1]
            found[-1] = language, first, text + (line if fence else line[4:]) + "\n"
            was_code = not fence
        else:
            was_code = False
    assert not fence, f"{name} has a code block without an end"
    return found


def prose(name: str) -> str:
    """A document without its fenced code."""
    return re.sub(r"^```.*?^```$", "", (ROOT / name).read_text(), flags=re.DOTALL | re.MULTILINE)


def words(text: str) -> int:
    """How many words a document has to read: tables, code, comments and addresses of links left out."""
    text = re.sub(r"^```.*?^```$|<!--.*?-->", "", text, flags=re.DOTALL | re.MULTILINE)
    read = [line for line in text.splitlines() if not line.startswith(("|", "    "))]
    return len(re.sub(r"\]\([^)]*\)", "]", " ".join(read)).split())


def commands(program: str) -> list[str]:
    """Every line of code in the documents, not Python, that starts with the program's name."""
    lines = [line for name in DOCUMENTS for kind, _, text in blocks(name) if kind != "python" for line in _joined(text)]
    return sorted({line for line in lines if line.startswith(f"{program} ")})


def _joined(text: str) -> list[str]:
    lines = text.replace("\\\n", " ").splitlines()
    return [line.strip().removeprefix("$ ").removeprefix(".venv/bin/") for line in lines]


def test_the_documents_show_code_and_commands():
    assert {"README.md", "docs/tour.md"} <= {
        name for name in DOCUMENTS for kind, *_ in blocks(name) if kind == "python"
    }
    assert {line.split()[1] for line in commands("altmin")} >= {"train", "compare", "data"}
    assert any("nnodes" in line for line in launched())
    assert {"make demo", "make test"} <= {line.split("#")[0].strip() for line in commands("make")}


@EVERY_DOCUMENT
def test_every_python_block_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(maps, "CLOSED_FORMS", dict(maps.CLOSED_FORMS))  # what an example registers goes with it
    monkeypatch.setattr(protocol, "_FACTORIES", dict(protocol._FACTORIES))
    namespace: dict[str, Any] = {"__name__": "document"}
    with torch.random.fork_rng():
        for language, first, text in blocks(name):
            if language == "python":  # the empty lines make a traceback name the document's own
                try:
                    exec(compile("\n" * (first - 1) + text, str(ROOT / name), "exec"), namespace)
                except ImportError as error:
                    if error.name in OPTIONAL:
                        pytest.skip(f"{error.name} is not installed, which {name} needs in line {first} and on")
                    raise


@EVERY_DOCUMENT
def test_every_relative_link_leads_to_a_file(name: str):
    links = re.findall(r"\]\(([^)\s]+)\)", prose(name))
    relative = [link.partition("#")[0] for link in links if not re.match(r"[a-z]+:|#", link)]
    missing = [link for link in relative if not (ROOT / name).parent.joinpath(link).exists()]
    assert not missing


@pytest.mark.parametrize("name", [name for name in DOCUMENTS if name != "CHANGELOG.md"])
def test_no_page_is_too_long_to_read(name: str):
    most = 900 if name == "README.md" else 1800
    assert words((ROOT / name).read_text()) <= most, "shorten the page, or move a part to a page of its own"


@pytest.mark.parametrize("line", commands("altmin"))
def test_every_command_shown_is_one_that_altmin_takes(line: str):
    _, *arguments = shlex.split(line, comments=True)
    group: Any = PROGRAM.group(arguments[0])
    name, command, rest = group.resolve_command(group.make_context("altmin", [arguments[0], "--help"]), arguments)
    given = command.make_context(name, rest).params  # an unknown option, or a value of the wrong kind, raises here
    for method in ",".join(given.get(key, "") for key in ("method", "methods")).strip(",").split(","):
        if method:
            altmin.methods.factory(method)
    if "data" in given and given["data"] in altmin.data.names():
        data = altmin.data.dataset(given["data"])
        altmin.models.create(given["model"], data.sample_shape, data.classes, data.tokens)


@pytest.mark.parametrize("line", commands("python -m reproduction"))
def test_every_command_shown_is_one_that_reproduction_takes(line: str):
    arguments = shlex.split(line, comments=True)[3:]
    if arguments:
        group: Any = MEASUREMENTS.group(arguments[0])
        context = group.make_context("reproduction", [arguments[0], "--help"])
        name, command, rest = group.resolve_command(context, arguments)
        command.make_context(name, rest)  # an unknown option, or a value of the wrong kind, raises here


def launched() -> list[str]:
    """The commands of torchrun in the documents, after what starts them."""
    shown = [(kind, text) for name in DOCUMENTS for kind, _, text in blocks(name)]
    lines = [line for kind, text in shown if kind in ("", "console", "bash") for line in _joined(text)]
    return sorted({line[line.index("torchrun ") :] for line in lines if "torchrun " in line})


@pytest.mark.parametrize("line", launched())
def test_every_command_of_torchrun_shown_is_one_that_it_and_altmin_take(line: str):
    given = get_args_parser().parse_args(shlex.split(line, comments=True)[1:])  # an unknown option raises SystemExit
    machines = given.nnodes.split(":")
    assert all(re.fullmatch(r"\d+|\$\w+", each) for each in machines)
    assert given.nproc_per_node.isdigit()
    assert given.rdzv_backend == "c10d" if ":" in given.rdzv_endpoint else machines == ["1", "1"]
    if given.module:
        assert given.training_script == "altmin"
        test_every_command_shown_is_one_that_altmin_takes(shlex.join(["altmin", *given.training_script_args]))


@pytest.mark.parametrize("line", commands("make"))
def test_every_make_target_shown_exists(line: str):
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(shlex.split(line, comments=True)[1:]) <= set(targets)
