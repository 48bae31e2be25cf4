"""Draws the source of a network with its batches and its loss: fragments one after the other, in branches, in classes
of their own, under `with` lines, with hooks on their modules. The fragments are in the folder fragments."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from .networks_writer import HEADER, Source, Value, Writer, fragments

LAYERS, PYTHON = (
    {shape: fragments(f"{kind}/{shape}") for shape in ("every", "features", "vectors", "sequences", "images")}
    for kind in ("layers", "python")
)
TOKENS, POOLS, HOOKS = fragments("tokens"), fragments("pools"), fragments("hooks")
BETWEEN, LOSSES, POSITION_LOSSES = fragments("between"), fragments("losses"), fragments("position-losses")
COMMON_LOSSES = ("cross_entropy", "mse_loss", "CrossEntropyLoss with weights", "own mean of squares")
UNDER = (
    *("with torch.no_grad():", "with torch.set_grad_enabled(False):", "with torch.enable_grad():"),
    *("if self.training:", "if True:", 'with torch.autocast("cpu", torch.bfloat16):', "for _ in range(1):"),
    *("with torch.autograd.graph.save_on_cpu():", 'with torch.autograd.profiler.record_function("part"):'),
)
SIGNATURES = (*("self, x",) * 5, "self, x, scale=1.0", "self, x, *args, **kwargs", "self, x, mask=None")


@dataclass(frozen=True)
class Network:
    """source: text that defines model, loss, inputs(samples) and targets(samples), which read the name `length`, and
    between(), which is called between two steps; it adds the handles of global hooks to `handles`. batches: samples and
    length of each. used: names of the fragments."""

    source: str
    batches: list[tuple[int, int]]
    used: list[str]


def draw(r: Random) -> Network:
    """A network of one to about twenty fragments, some of them about Python, as often as was drawn."""
    source, samples, lengths = Source(r), r.choices((5, 6, 7), k=2), [r.choice((3, 4))] * 2
    if r.random() < 0.2:
        samples[1], lengths[1] = r.choice((1, 2, 9)), r.choice((2, 5))
    w, odd = Writer(source), r.choice((0.0, 0.15, 0.3, 0.5))
    x, inputs = _input(w, samples[0], lengths[0])
    x = _head(w, line(w, x, odd, r.choice((1, 2, 4))), odd)
    source.top.append(w.text("Net", "nn.Module", r.choice(SIGNATURES), x.name))
    model = _model(w)
    _hooks(w)
    lines = [HEADER, *source.top, *model, *source.after, *_loss(w, x), inputs, *_between(w)]
    return Network("\n".join(lines) + "\n", list(zip(samples, lengths, strict=True)), source.used)


def _input(w: Writer, samples: int, length: int) -> tuple[Value, str]:
    """The first value with features, and a line that defines the inputs."""
    kind, width = w.r.choice(("vectors", "vectors", "sequences", "tokens", "images")), w.r.randint(2, 4)
    if kind == "tokens":
        if w.r.random() < 0.5:
            w.masks.append((w.let("(x != 0).to(torch.float64).unsqueeze(-1)"), length))
        x = _written(w, TOKENS, Value("x", (samples, length, width)))
        return x, "inputs = lambda samples: torch.randint(7, (samples, length))"
    shape = {"vectors": (width,), "sequences": (length, width), "images": (2, 4, 4)}[kind]
    sizes = ", ".join(map(str, ("samples", *(("length", width) if kind == "sequences" else shape))))
    return Value("x", (samples, *shape)), f"inputs = lambda samples: torch.randn({sizes}, dtype=torch.float64)"


def line(w: Writer, x: Value, odd: float, longest: int = 3) -> Value:
    """Fragments one after the other. odd: how often one is about Python."""
    for _ in range(w.r.randint(1, longest)):
        x = step(w, x, odd)
    return x


def step(w: Writer, x: Value, odd: float) -> Value:
    if w.r.random() < 0.3 and w.depth < 3:
        return w.r.choice(COMPOSED)(w, x, odd)
    return _written(w, fitting(PYTHON if w.r.random() < odd else LAYERS, x), x)


def fitting(kind: dict[str, dict[str, str]], x: Value) -> dict[str, str]:
    """The fragments that can follow a value."""
    rank = len(x.shape)
    features = kind["features"] if rank < 4 else {}
    return kind["every"] | features | kind[{2: "vectors", 3: "sequences", 4: "images"}[rank]]


def _written(w: Writer, table: dict[str, str], x: Value) -> Value:
    name = w.r.choice(sorted(table))
    return w.write(name, table[name], x)


def _widened(w: Writer, x: Value, odd: float) -> Value:
    width = w.r.randint(2, 4)
    if len(x.shape) == 4:
        f = w.module(f"nn.Conv2d({x.width}, {width}, 3, padding=1)")
        return Value(w.let(f"{f}({x.name})"), (x.shape[0], width, *x.shape[2:]))
    return Value(w.let(f"{w.linear(x.width, width)}({x.name})"), (*x.shape[:-1], width))


def _inner(w: Writer, x: Value, odd: float, longest: int = 3) -> Value:
    w.depth += 1
    y = line(w, x, odd, longest)
    w.depth -= 1
    return y


def _branches(w: Writer, x: Value, odd: float) -> Value:
    """Two or three lines from one value, joined."""
    ends = [_inner(w, x, odd, 2) for _ in range(w.r.randint(2, 3))]
    names, widths = ", ".join(e.name for e in ends), sum(e.width for e in ends)
    if any(e.shape != x.shape for e in ends) or w.r.random() < 0.2:
        if len(x.shape) == 4:
            f = w.module(f"nn.Conv2d({widths}, {x.width}, 1)")
            return x.called(w.let(f"{f}(torch.cat([{names}], dim=1))"))
        return x.called(w.let(f"{w.linear(widths, x.width)}(torch.cat([{names}], -1))"))
    first, second = ends[0].name, ends[1].name
    joins = (
        *(f"sum([{names}])", f"torch.stack([{names}]).mean(0)", f"functools.reduce(torch.maximum, [{names}])"),
        *(f"{first} * torch.sigmoid({second})", f"torch.where({second} > 0.137, {first}, {second})"),
    )
    return x.called(w.let(w.r.choice(joins)))


def _residual(w: Writer, x: Value, odd: float) -> Value:
    y = _inner(w, x, odd)
    sums = (f"{x.name} + {y.name}", f"{y.name} + 0.5 * {x.name}", f"torch.add({x.name}, {y.name})")
    return x.called(w.let(w.r.choice(sums))) if y.shape == x.shape else y


def _again(w: Writer, x: Value, odd: float) -> Value:
    """A layer that was called before."""
    fits = [name for name, width in w.squares if width == x.width and len(x.shape) < 4]
    if not fits:
        return _widened(w, x, odd)
    w.source.used.append("a layer of before")
    return x.called(w.let(f"{w.r.choice(fits)}({x.name})"))


def _under(w: Writer, x: Value, odd: float) -> Value:
    """A line of fragments under a `with`, beside the value itself."""
    text = w.r.choice(UNDER)
    w.source.used.append(text)
    result = w.let(f"0.0 * {x.name}")
    with w.under(text):
        y = _inner(w, x, odd)
        w.line(f"{result} = {y.name}" if y.shape == x.shape else f"{result} = {y.name}.mean()")
    return x.called(w.let(f"{x.name} + 0.5 * {result}"))


def _own_class(w: Writer, x: Value, odd: float) -> Value:
    """A module of the user's own, called in one of many ways."""
    name, attribute = w.new("Part"), w.new("part")
    way = w.r.choice(("plain", "plain", "Sequential", "ModuleList", "ModuleDict", "twice", "forward", "keyword"))
    place = {"Sequential": "[0]", "ModuleList": "[0]", "ModuleDict": "['a']"}.get(way, "")
    inside = Writer(w.source, f"{w.path}.{attribute}{place}", w.depth + 1)
    y = line(inside, x.called("x"), odd)
    text = inside.text(name, w.r.choice((*("nn.Module",) * 5, "nn.Identity")), "self, x, scale=1.0", y.name)
    decorator = w.r.choice((*("",) * 10, "@torch.no_grad()", "@torch.enable_grad()"))
    if decorator:
        w.source.used.append(f"{decorator} on a forward")
        text = text.replace("    def forward(", f"    {decorator}\n    def forward(")
    w.source.top.append(text)
    containers = {
        "Sequential": f"nn.Sequential({name}(), nn.Identity())",
        "ModuleList": f"nn.ModuleList([{name}()])",
        "ModuleDict": f"nn.ModuleDict({{'a': {name}()}})",
    }
    w.init.append(f"self.{attribute} = {containers.get(way, f'{name}()')}")
    w.source.hooked.append(inside.path)
    part = f"self.{attribute}"
    if way == "ModuleList":
        result = w.let(x.name)
        with w.under(f"for layer in {part}:"):
            w.line(f"{result} = layer({result})")
        return Value(result, y.shape)
    calls = {
        "ModuleDict": f"{part}['a']({x.name})",
        "twice": f"{part}(0.5 * {part}({x.name}))" if y.shape == x.shape else f"{part}({x.name})",
        "forward": f"{part}.forward({x.name})",
        "keyword": f"{part}({x.name}, scale=2.0)",
    }
    return Value(w.let(calls.get(way, f"{part}({x.name})")), y.shape)


COMPOSED: tuple[Callable[[Writer, Value, float], Value], ...] = (
    *(_widened, _branches, _residual, _again, _under, _own_class, _own_class, _own_class),
)


def _head(w: Writer, x: Value, odd: float) -> Value:
    """Down to the outputs, for every sample or for every position."""
    if len(x.shape) == 4:
        size = x.shape[1] * x.shape[2] * x.shape[3]
        ways = [(f"{x.name}.mean(dim=(2, 3))", x.width), (f"torch.flatten({x.name}, 1)", size)]
        ways.append((f"{x.name}.reshape({x.name}.size(0), -1)", size))
        text, width = w.r.choice(ways)
        x = Value(w.let(text), (x.shape[0], width))
    elif len(x.shape) == 3 and w.r.random() < 0.8:
        masks = [name for name, length in w.masks if length == x.shape[1]]
        if masks and w.r.random() < 0.7:
            w.source.used.append("masked mean, its mask made first")
            pooled = w.let(f"({x.name} * {masks[0]}).sum(1) / {masks[0]}.sum(1).clamp(min=1)")
        else:
            pooled = _written(w, POOLS, x).name
        x = Value(pooled, (x.shape[0], x.width))
    if w.r.random() < 0.4:
        x = step(w, x, odd)
    embeddings = [line.split(" ")[0] for line in w.init if f"= nn.Embedding(7, {x.width}" in line]
    if embeddings and w.r.random() < 0.3:
        return _tied(w, x, embeddings[0])
    return Value(w.let(f"{w.linear(x.width, 3)}({x.name})"), (*x.shape[:-1], 3))


def _tied(w: Writer, x: Value, embedding: str) -> Value:
    """An output layer with the weight of the embedding."""
    w.source.used.append("output tied to the embedding")
    if w.r.random() < 0.5:
        result = w.let(f"F.linear({x.name}, {embedding}.weight)")
    else:
        f = w.linear(x.width, 7)
        w.init.append(f"{f}.weight = {embedding}.weight")
        result = w.let(f"{f}({x.name})")
    return Value(result, (*x.shape[:-1], 7))


def _model(w: Writer) -> list[str]:
    way = w.r.random()
    if way < 0.1:
        w.source.used.append("in a Sequential")
        w.source.after = [line.replace("model.", "model[0].") for line in w.source.after]
        w.source.hooked = [path.replace("model.", "model[0].") for path in w.source.hooked]
        return ["model = nn.Sequential(Net())", "fill(model)"]
    if way < 0.15:
        w.source.used.append("in evaluation")
    return ["model = Net()", "fill(model)", *["model.eval()"] * (way < 0.15)]


def _hooks(w: Writer) -> None:
    """Hooks and the like on modules, in one of six networks."""
    if w.r.random() < 0.17:
        for _ in range(w.r.choice((1, 1, 2))):
            name = w.r.choice(sorted(HOOKS))
            w.source.used.append(name)
            w.source.after += HOOKS[name].replace("$f", w.r.choice([*w.source.hooked, "model"])).splitlines()


def _loss(w: Writer, x: Value) -> list[str]:
    table = LOSSES if len(x.shape) == 2 else POSITION_LOSSES
    common = table is LOSSES and w.r.random() < 0.7
    name = w.r.choice(COMMON_LOSSES if common else sorted(table))
    w.source.used.append(name)
    return table[name].replace("$K", str(x.shape[-1])).splitlines()


def _between(w: Writer) -> list[str]:
    """What is done between two steps: nothing, in two of three networks."""
    if w.r.random() < 2 / 3:
        return ["def between(): pass"]
    name = w.r.choice(sorted(BETWEEN))
    w.source.used.append(f"between steps: {name}")
    lines = BETWEEN[name].replace("$f", w.r.choice([*w.source.hooked, "model"])).splitlines()
    return ["def between():", *(f"    {line}" for line in lines)]
