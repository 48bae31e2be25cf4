"""Writes the source of a network: a class with `__init__` and `forward`, from fragments that are texts with blanks.

A fragment has one line per line of source; the word before a colon says where the line goes, and without one it goes
into `forward`:

    module: $f = nn.Linear($W, $W)      a module of the class, `self.f3 = ...`
    param: $p = torch.randn($W)         `self.p4 = nn.Parameter(...)`
    buffer: $n = torch.zeros(())        `self.register_buffer("n5", ...)`
    init: $f.weight = $g.weight         another line of `__init__`; with `=` to a new name, a plain attribute
    method: def $h(self, x):            another method
    top: class $R(Function):            in front of all classes
    after: $f.register_forward_hook(g)  after the model has been made, with `$f` as seen from `model`
    $y = $f($x)                         x is the fragment's input, y its output, of the same shape

Blanks are new names, but for $x and $y and sizes of x: $B samples, $W features (channels of an image), $T positions.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random

FOLDER = Path(__file__).parent / "fragments"
PLACES = ("module", "param", "buffer", "init", "method", "top", "after")
LINE = re.compile(rf"({'|'.join(PLACES)}): ?(.*)")
HEADER = """import collections, copy, functools, math, types
import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional as F
from torch.nn.utils import parametrizations, parametrize, prune
from torch.utils.checkpoint import checkpoint
"""


@dataclass(frozen=True)
class Value:
    """A tensor of a `forward`: its name there, and its shape: (samples, features), (samples, positions, features) or
    (samples, channels, height, width)."""

    name: str
    shape: tuple[int, ...]

    @property
    def width(self) -> int:
        return self.shape[1] if len(self.shape) == 4 else self.shape[-1]

    def called(self, name: str) -> "Value":
        return Value(name, self.shape)


@dataclass
class Source:
    """What all classes of one source share. top: classes and functions. after: lines once the model has been made.
    used: names of the fragments. hooked: modules that return a tensor, as seen from `model`. grouped: whether
    something was drawn that stands at most once in a source."""

    r: Random
    numbers: Iterator[int] = field(default_factory=count)
    top: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    used: list[str] = field(default_factory=list)
    hooked: list[str] = field(default_factory=list)
    parameters: list[str] = field(default_factory=list)


class Writer:
    """One class. path: an instance, as seen from `model`. depth: of classes around it."""

    def __init__(self, source: Source, path: str = "model", depth: int = 0):
        self.source, self.path, self.depth, self.r = source, path, depth, source.r
        self.init: list[str] = []
        self.body: list[str] = []
        self.methods: list[str] = []
        self.squares: list[tuple[str, int]] = []  # modules from features to as many, which can be called again
        self.masks: list[tuple[str, int]] = []  # (samples, positions, 1) of zeros and ones, with the positions
        self.indent = ""

    def new(self, stem: str) -> str:
        return f"{stem}{next(self.source.numbers)}"

    def line(self, text: str) -> None:
        self.body.append(self.indent + text)

    @contextmanager
    def under(self, text: str) -> Iterator[None]:
        """Lines of `forward` below one that ends with a colon."""
        self.line(text)
        self.indent += "    "
        yield
        self.indent = self.indent[4:]

    def let(self, text: str) -> str:
        name = self.new("h")
        self.line(f"{name} = {text}")
        return name

    def module(self, text: str, square: int = 0, hooked: bool = True) -> str:
        name = self.new("m")
        self.init.append(f"self.{name} = {text}")
        if square:
            self.squares.append((f"self.{name}", square))
        if hooked:
            self.source.hooked.append(f"{self.path}.{name}")
        return f"self.{name}"

    def linear(self, inputs: int, outputs: int) -> str:
        return self.module(f"nn.Linear({inputs}, {outputs})", inputs if inputs == outputs else 0)

    def write(self, name: str, text: str, x: Value) -> Value:
        """Fills the blanks of a fragment and puts its lines where they belong."""
        self.source.used.append(name)
        sizes = {"B": x.shape[0], "W": x.width, "T": x.shape[1], "H": x.shape[-1]}
        names: dict[str, str] = {"x": x.name, **{blank: str(size) for blank, size in sizes.items()}}
        own: set[str] = set()
        for line in text.strip().splitlines():
            place, rest = match.groups() if (match := LINE.fullmatch(line.strip("\n"))) else ("forward", line)
            start = re.match(r"\$(\w+) = (.*)", rest)
            if place in ("module", "param", "buffer", "init") and start and start[1] not in names:
                names[start[1]] = self.new(start[1])
                own.add(start[1])
            self._put(place, rest, names, own)
        return x.called(names.get("y", x.name))

    def _put(self, place: str, text: str, names: dict[str, str], own: set[str]) -> None:
        owner = self.path if place == "after" else "self"

        def fill(match: re.Match[str]) -> str:
            name = names.setdefault(match[1], self.new("h" if match[1] == "y" else match[1]))
            return f"{owner}.{name}" if match[1] in own else name

        filled = re.sub(r"\$(\w+)", fill, text)
        to, _, made = filled.partition(" = ")
        if place == "forward":
            self.line(filled)
        elif place == "param":
            self.init.append(f"{to} = nn.Parameter({made})")
            self.source.parameters.append(f"{self.path}.{to.removeprefix('self.')}")
        elif place == "buffer":
            self.init.append(f'self.register_buffer("{to.removeprefix("self.")}", {made})')
        elif place in ("module", "init"):
            self.init.append(filled)
            if place == "module" and made.startswith(("nn.Linear", "nn.LayerNorm", "nn.Conv", "nn.GELU")):
                self.source.hooked.append(f"{self.path}.{to.removeprefix('self.')}")
        else:
            {"method": self.methods, "top": self.source.top, "after": self.source.after}[place].append(filled)

    def text(self, name: str, base: str, signature: str, result: str) -> str:
        """The class."""
        init = ["def __init__(self):", *_indented(["super().__init__()", *self.init])]
        forward = [f"def forward({signature}):", *_indented([*self.body, f"return {result}"])]
        return "\n".join([f"class {name}({base}):", *_indented([*init, *forward, *self.methods])])


def _indented(lines: Sequence[str]) -> list[str]:
    return ["    " + line for line in lines]


def fragments(kind: str) -> dict[str, str]:
    """Fragments by name, from the files of this kind in the folder fragments: a line `## name` is in front of each."""
    texts = [file.read_text() for file in sorted(FOLDER.glob(f"{kind}*.txt"))]
    parts = [part for text in texts for part in text.split("\n## ")[1:]]
    return {name: lines.strip() for name, _, lines in (part.partition("\n") for part in parts)}
