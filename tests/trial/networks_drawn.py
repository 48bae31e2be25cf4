"""Draws the source of a network with a batch and a loss: fragments one after the other, in branches, in classes of
their own, under `with` lines, with hooks on their modules."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from . import networks_layers as layers
from . import networks_python as python
from .networks_writer import HEADER, Source, Value, Writer, fragments

Fragments = dict[str, str]


@dataclass(frozen=True)
class Network:
    """source: text that defines model, loss, handles (of global hooks) and batch(samples), the inputs and targets.
    samples: of the batches. used: names of the fragments."""

    source: str
    samples: list[int]
    used: tuple[str, ...]


TOKENS = fragments("""
## Embedding
module: $e = nn.Embedding(7, $W)
$y = $e($x)
## embedding of a parameter by index
param: $p = torch.randn(7, $W)
$y = $p[$x]
## F.embedding
param: $p = torch.randn(7, $W)
$y = F.embedding($x, $p)
## one-hot tokens
param: $p = torch.randn(7, $W)
$y = F.one_hot($x, 7).to($p) @ $p
## one-hot tokens and a layer
module: $e = nn.Linear(7, $W)
$y = $e(F.one_hot($x, 7).to($e.weight.dtype))
## positions before the embedding
param: $p = torch.randn(9, $W)
module: $e = nn.Embedding(7, $W)
$a = $p[: $x.shape[1]]
$y = $e($x) + $a
## positions by an embedding of arange
module: $e = nn.Embedding(7, $W)
module: $p = nn.Embedding(9, $W)
$y = $e($x) + $p(torch.arange($x.size(1), device=$x.device))
## class token before the embedding
param: $p = torch.randn(1, 1, $W)
module: $e = nn.Embedding(7, $W)
$c = $p.expand($x.shape[0], -1, -1)
$y = torch.cat([$c, $e($x)], dim=1)[:, : $x.shape[1]]
## padding
module: $e = nn.Embedding(7, $W, padding_idx=0)
$m = ($x != 0).unsqueeze(-1)
$y = $e($x) * $m
## two embeddings of the tokens
module: $e = nn.Embedding(7, $W)
module: $g = nn.Embedding(7, $W)
$y = $e($x) * torch.sigmoid($g($x.flip(1)))
## frozen embedding
module: $e = nn.Embedding(7, $W)
after: $e.weight.requires_grad_(False)
$y = $e($x)
## shared embedding for a bias
module: $e = nn.Embedding(7, $W)
$y = $e($x) + $e.weight.mean(0)
## counts
module: $e = nn.Embedding(7, $W)
buffer: $n = torch.zeros(7)
$n.index_add_(0, $x.flatten(), torch.ones_like($x.flatten(), dtype=$n.dtype))
$y = $e($x)
## tokens changed in place
module: $e = nn.Embedding(7, $W)
$a = $x.clone()
$a[:, 0] = 3
$y = $e($a)
""")
"""From (samples, positions) of integers to features."""

POOLS = fragments("""
## mean
$y = $x.mean(1)
## mean by its size
$y = $x.sum(dim=1) / $x.shape[1]
## first position
$y = $x[:, 0]
## last position
$y = $x[:, -1, :]
## amax
$y = $x.amax(dim=1)
## attention pool
module: $f = nn.Linear($W, 1)
$y = ($f($x).softmax(dim=1) * $x).sum(1)
## attention pool by a parameter
param: $p = torch.randn($W)
$a = torch.softmax($x @ $p, dim=1)
$y = torch.einsum("bt,btw->bw", $a, $x)
## class token read out
param: $p = torch.randn(1, 1, $W)
module: $f = nn.TransformerEncoderLayer($W, 1, 4, dropout=0.0, batch_first=True)
$y = $f(torch.cat([$p.expand($x.size(0), 1, $W), $x], 1))[:, 0]
## last state
module: $f = nn.GRU($W, $W, batch_first=True)
_, $h = $f($x)
$y = $h[-1]
## last state of an LSTM
module: $f = nn.LSTM($W, $W, batch_first=True)
$y = $f($x)[1][0].squeeze(0)
""")
"""From (samples, positions, features) to (samples, features)."""


def fitting(kind: object, x: Value) -> Fragments:
    """The fragments of a file that fit a value."""
    every, rank = dict(kind.EVERY), len(x.shape)  # type: ignore[attr-defined]
    own = {2: "VECTORS", 3: "SEQUENCES", 4: "IMAGES"}[rank]
    return every | getattr(kind, own) | (kind.FEATURES if rank < 4 else {})  # type: ignore[attr-defined]


def step(w: Writer, x: Value, odd: float) -> Value:
    """One more fragment. odd: how often it is one of what Python does."""
    chance = w.r.random()
    if chance < 0.2 and w.depth < 3:
        return w.r.choice(COMPOSED)(w, x, odd)
    table = fitting(python if w.r.random() < odd else layers, x)
    name = w.r.choice(sorted(table))
    return w.write(name, table[name], x)


def line(w: Writer, x: Value, odd: float, longest: int = 3) -> Value:
    for _ in range(w.r.randint(1, longest)):
        x = step(w, x, odd)
    return x


def _widened(w: Writer, x: Value, odd: float) -> Value:
    if len(x.shape) == 4:
        width = w.r.randint(2, 3)
        f = w.module(f"nn.Conv2d({x.width}, {width}, 3, padding=1)")
        return Value(w.let(f"{f}({x.name})"), (x.shape[0], width, *x.shape[2:]))
    width = w.r.randint(2, 4)
    return Value(w.let(f"{w.linear(x.width, width)}({x.name})"), (*x.shape[:-1], width))


def _branches(w: Writer, x: Value, odd: float) -> Value:
    """Two or three lines from one value, joined."""
    w.depth += 1
    ends = [line(w, x, odd, 2) for _ in range(w.r.randint(2, 3))]
    w.depth -= 1
    ends = [w.r.choice(ends), *ends][: len(ends)] if w.r.random() < 0.1 else ends
    same = [e.name for e in ends if e.shape == x.shape]
    joins = ["sum([{}])", "torch.stack([{}]).mean(0)", "functools.reduce(torch.maximum, [{}])"]
    if len(same) == len(ends):
        first, second, *_ = same
        join = w.r.choice([*joins, f"{first} * torch.sigmoid({second})", f"torch.where({second} > 0.137, {first}, {second})"])
        return x.called(w.let(join.format(", ".join(same))))
    if len(x.shape) == 4:
        f = w.module(f"nn.Conv2d({sum(e.width for e in ends)}, {x.width}, 1)")
        return x.called(w.let(f"{f}(torch.cat([{', '.join(e.name for e in ends)}], dim=1))"))
    f = w.linear(sum(e.width for e in ends), x.width)
    return x.called(w.let(f"{f}(torch.cat([{', '.join(e.name for e in ends)}], -1))"))


def _residual(w: Writer, x: Value, odd: float) -> Value:
    w.depth += 1
    y = line(w, x, odd)
    w.depth -= 1
    if y.shape == x.shape:
        return x.called(w.let(w.r.choice(("{0} + {1}", "{1} + 0.5 * {0}", "torch.add({0}, {1})")).format(x.name, y.name)))
    return y


def _again(w: Writer, x: Value, odd: float) -> Value:
    """A layer that was called before."""
    fits = [name for name, width in w.squares if width == x.width and len(x.shape) < 4]
    if not fits:
        return _widened(w, x, odd)
    w.source.used.append("a layer of before")
    return x.called(w.let(f"{w.r.choice(fits)}({x.name})"))


def _under(w: Writer, x: Value, odd: float) -> Value:
    """A line of fragments under a `with`, beside the value itself."""
    text = w.r.choice(
        (
            *("with torch.no_grad():", "with torch.set_grad_enabled(False):", "with torch.enable_grad():"),
            *("if self.training:", "if True:", 'with torch.autocast("cpu", torch.bfloat16):', "for _ in range(1):"),
            *("with torch.autograd.graph.save_on_cpu():", 'with torch.autograd.profiler.record_function("part"):'),
        )
    )
    w.source.used.append(text)
    y = w.let(f"0.0 * {x.name}") if text == "if self.training:" else ""
    w.depth += 1
    with w.under(text):
        inner = line(w, x, odd)
        result = w.let(inner.name) if inner.shape == x.shape else w.let(f"{inner.name}.mean()")
        if y:
            w.line(f"{y} = {result}")
    w.depth -= 1
    return x.called(w.let(f"{x.name} + 0.5 * {y or result}"))


def _own_class(w: Writer, x: Value, odd: float) -> Value:
    """A module of the user's own, called in one of many ways."""
    name, attribute = w.new("Part"), w.new("part")
    way = w.r.choice(("plain", "plain", "Sequential", "ModuleList", "ModuleDict", "twice", "method", "keyword"))
    place = {"Sequential": "[0]", "ModuleList": "[0]", "ModuleDict": "['a']"}.get(way, "")
    inside = Writer(w.source, f"{w.path}.{attribute}{place}", w.depth + 1)
    x_inside = x.called("x")
    y = line(inside, x_inside, odd)
    if way == "twice" and y.shape != x.shape:
        way = "plain"
    base = w.r.choice(("nn.Module",) * 4 + ("nn.Identity",))
    decorator = w.r.choice(("",) * 8 + ("@torch.no_grad()", "@torch.enable_grad()"))
    text = inside.text(name, base, "self, x, scale=1.0", y.name)
    if decorator:
        w.source.used.append(f"{decorator} on a forward")
        text = text.replace("    def forward(", f"    {decorator}\n    def forward(")
    w.source.top.append(text)
    made = {
        "Sequential": f"nn.Sequential({name}(), nn.Identity())",
        "ModuleList": f"nn.ModuleList([{name}()])",
        "ModuleDict": f"nn.ModuleDict({{'a': {name}()}})",
    }.get(way, f"{name}()")
    w.init.append(f"self.{attribute} = {made}")
    if way in ("plain", "twice", "keyword", "Sequential"):
        w.source.hooked.append(f"{w.path}.{attribute}")
    part = f"self.{attribute}"
    if way == "ModuleList":
        result = w.let(x.name)
        with w.under(f"for layer in {part}:"):
            w.line(f"{result} = layer({result})")
        return Value(result, y.shape)
    call = {
        "ModuleDict": f"{part}['a']({x.name})",
        "twice": f"{part}(0.5 * {part}({x.name}))",
        "method": f"{part}.forward({x.name})",
        "keyword": f"{part}({x.name}, scale=2.0)",
    }.get(way, f"{part}({x.name})")
    return Value(w.let(call), y.shape)


COMPOSED: tuple[Callable[[Writer, Value, float], Value], ...] = (
    *(_widened, _branches, _residual, _again, _under, _own_class, _own_class),
)


def draw(r: Random) -> Network:
    source, samples = Source(r), r.choices((5, 6, 7), k=r.choice((1, 2)))
    odd = r.choice((0.0, 0.15, 0.3, 0.5))
    w = Writer(source)
    x, batch = _input(w, samples[0])
    x = line(w, x, odd, r.choice((1, 2, 4)))
    x = _head(w, x, odd)
    _hooks(w)
    signature = r.choice(("self, x",) * 5 + ("self, x, scale=1.0", "self, x, *args, **kwargs", "self, x, mask=None"))
    source.top.append(w.text("Net", "nn.Module", signature, x.name))
    after = [*_model(w), *source.after, *_loss(w), *batch]
    return Network("\n".join([HEADER, *source.top, *after]) + "\n", samples, tuple(source.used))


def _input(w: Writer, samples: int) -> tuple[Value, list[str]]:
    """The first value, and lines that define `inputs(samples)`."""
    kind, width = w.r.choice(("vectors", "vectors", "sequences", "tokens", "images")), w.r.randint(2, 4)
    if kind == "tokens":
        length = w.r.randint(3, 4)
        if w.r.random() < 0.5:
            w.masks.append((w.let("(x != 0).to(torch.float64).unsqueeze(-1)"), length))
        table = TOKENS
        name = w.r.choice(sorted(table))
        x = w.write(name, table[name], Value("x", (samples, length, width)))
        return x, [f"inputs = lambda samples: torch.randint(7, (samples, {length}))"]
    shape = {"vectors": (width,), "sequences": (3, width), "images": (2, 4, 4)}[kind]
    made = f"torch.randn(samples, {', '.join(map(str, shape))}, dtype=torch.float64)"
    return Value("x", (samples, *shape)), [f"inputs = lambda samples: {made}"]


def _head(w: Writer, x: Value, odd: float) -> Value:
    """Down to the outputs, for every sample."""
    if len(x.shape) == 4:
        way = w.r.choice(("mean", "flatten", "view"))
        size = x.shape[1] if way == "mean" else x.shape[1] * x.shape[2] * x.shape[3]
        text = {"mean": "{}.mean(dim=(2, 3))", "flatten": "torch.flatten({}, 1)", "view": "{0}.reshape({0}.size(0), -1)"}
        x = Value(w.let(text[way].format(x.name)), (x.shape[0], size))
    elif len(x.shape) == 3:
        masks = [name for name, length in w.masks if length == x.shape[1]]
        if masks and w.r.random() < 0.7:
            m = w.r.choice(masks)
            w.source.used.append("masked mean, mask made first")
            x = Value(w.let(f"({x.name} * {m}).sum(1) / {m}.sum(1).clamp(min=1)"), (x.shape[0], x.shape[2]))
        else:
            name = w.r.choice(sorted(POOLS))
            pooled = w.write(name, POOLS[name], x)
            x = Value(pooled.name, (x.shape[0], x.shape[2]))
    if w.r.random() < 0.4:
        x = step(w, x, odd)
    f = w.linear(x.width, 3)
    return Value(w.let(f"{f}({x.name})"), (x.shape[0], 3))


def _hooks(w: Writer) -> None:
    """Hooks and the like on modules, in one of six networks."""
    if w.r.random() < 0.17:
        for _ in range(w.r.choice((1, 1, 2))):
            name = w.r.choice(sorted(python.HOOKS))
            module = w.r.choice([*w.source.hooked, "model"])
            text = python.HOOKS[name].replace("after: ", "").replace("$f", module)
            w.source.after += text.splitlines()
            w.source.used.append(name)


def _model(w: Writer) -> list[str]:
    way = w.r.random()
    if way < 0.1:
        w.source.used.append("in a Sequential")
        w.source.after = [line.replace("model.", "model[0].") for line in w.source.after]
        return ["model = nn.Sequential(Net(), nn.Tanh(), nn.Linear(3, 3))", "fill(model)"]
    lines = ["model = Net()", "fill(model)"]
    if way < 0.15:
        w.source.used.append("in evaluation")
        lines.append("model.eval()")
    return lines


LOSSES = fragments("""
## cross_entropy
loss = F.cross_entropy
targets = lambda samples: torch.randint(3, (samples,))
## CrossEntropyLoss with weights
loss = nn.CrossEntropyLoss(weight=torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64))
targets = lambda samples: torch.randint(3, (samples,))
## CrossEntropyLoss, sum
loss = nn.CrossEntropyLoss(reduction="sum")
targets = lambda samples: torch.randint(3, (samples,))
## CrossEntropyLoss with ignored labels
loss = nn.CrossEntropyLoss(ignore_index=-100, label_smoothing=0.1)
targets = lambda samples: torch.cat([torch.tensor([-100]), torch.randint(3, (samples - 1,))])
## ignored label of one's own
loss = lambda out, y: F.cross_entropy(out, y, ignore_index=2)
targets = lambda samples: torch.cat([torch.tensor([0]), torch.randint(3, (samples - 1,))])
## class probabilities
loss = nn.CrossEntropyLoss()
targets = lambda samples: torch.rand(samples, 3, dtype=torch.float64).softmax(1)
## nll of log_softmax
loss = lambda out, y: F.nll_loss(F.log_softmax(out, dim=1), y)
targets = lambda samples: torch.randint(3, (samples,))
## multi_margin_loss
loss = F.multi_margin_loss
targets = lambda samples: torch.randint(3, (samples,))
## mse_loss
loss = F.mse_loss
targets = lambda samples: torch.randn(samples, 3, dtype=torch.float64)
## MSELoss, sum
loss = nn.MSELoss(reduction="sum")
targets = lambda samples: torch.randn(samples, 3, dtype=torch.float64)
## L1Loss
loss = nn.L1Loss()
targets = lambda samples: torch.randn(samples, 3, dtype=torch.float64)
## SmoothL1Loss
loss = nn.SmoothL1Loss(beta=0.3)
targets = lambda samples: torch.randn(samples, 3, dtype=torch.float64)
## HuberLoss
loss = nn.HuberLoss(delta=0.5)
targets = lambda samples: torch.randn(samples, 3, dtype=torch.float64)
## BCEWithLogitsLoss
loss = nn.BCEWithLogitsLoss(pos_weight=torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64))
targets = lambda samples: torch.rand(samples, 3, dtype=torch.float64).round()
## kl_div
loss = lambda out, y: F.kl_div(out.log_softmax(1), y, reduction="batchmean")
targets = lambda samples: torch.rand(samples, 3, dtype=torch.float64).softmax(1)
## own mean of squares
def loss(out, y):
    return (out - y).pow(2).sum(1).mean()
targets = lambda samples: torch.randn(samples, 3, dtype=torch.float64)
## own loss of pairs of samples
def loss(out, y):
    a = F.normalize(out, dim=1, eps=0.1)
    return F.cross_entropy(3 * a @ a.T, torch.arange(len(out))) + (out - y).square().mean()
targets = lambda samples: torch.randn(samples, 3, dtype=torch.float64)
## penalty on the parameters
def loss(out, y):
    return F.mse_loss(out, y) + 0.01 * sum(p.square().sum() for p in model.parameters())
targets = lambda samples: torch.randn(samples, 3, dtype=torch.float64)
## penalty on one parameter
def loss(out, y):
    return F.cross_entropy(out, y) + 0.01 * next(model.parameters()).abs().sum()
targets = lambda samples: torch.randint(3, (samples,))
## penalty on the output
def loss(out, y):
    return F.cross_entropy(out, y) + 0.1 * out.square().mean()
targets = lambda samples: torch.randint(3, (samples,))
## loss module with parameters
class Loss(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(0.3, dtype=torch.float64))
    def forward(self, out, y):
        return F.mse_loss(out, y) * torch.exp(-self.scale) + self.scale
loss = Loss()
targets = lambda samples: torch.randn(samples, 3, dtype=torch.float64)
## loss module with a buffer
class Loss(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros((), dtype=torch.float64))
    def forward(self, out, y):
        self.mean.lerp_(out.detach().mean(), 0.1)
        return F.mse_loss(out - self.mean, y)
loss = Loss()
targets = lambda samples: torch.randn(samples, 3, dtype=torch.float64)
## loss with a parameter beside
weight = nn.Parameter(torch.tensor(0.7, dtype=torch.float64))
loss = lambda out, y: weight.exp() * F.cross_entropy(out, y)
targets = lambda samples: torch.randint(3, (samples,))
extra = [weight]
## loss of a detached part
def loss(out, y):
    return F.mse_loss(out, y) + ((out - out.detach().mean()) ** 2).mean()
targets = lambda samples: torch.randn(samples, 3, dtype=torch.float64)
## loss under no_grad for weights
def loss(out, y):
    with torch.no_grad():
        weights = torch.softmax((out - y).abs().sum(1), 0)
    return (weights * (out - y).square().sum(1)).sum()
targets = lambda samples: torch.randn(samples, 3, dtype=torch.float64)
## loss that changes its argument
def loss(out, y):
    out = out * 1.0
    out[:, 0] *= 0.5
    return F.mse_loss(out, y)
targets = lambda samples: torch.randn(samples, 3, dtype=torch.float64)
## loss with a Function
class Negated(Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)
    @staticmethod
    def backward(ctx, g):
        return -g
loss = lambda out, y: F.mse_loss(Negated.apply(out), y)
targets = lambda samples: torch.randn(samples, 3, dtype=torch.float64)
## loss that branches
def loss(out, y):
    return F.mse_loss(out, y) if out.mean() > 0 else F.l1_loss(out, y)
targets = lambda samples: torch.randn(samples, 3, dtype=torch.float64)
## loss with a tensor hook
def loss(out, y):
    if out.requires_grad:
        out.register_hook(lambda g: 2 * g)
    return F.mse_loss(out, y)
targets = lambda samples: torch.randn(samples, 3, dtype=torch.float64)
## constant loss term with a gradient by a model's layer
def loss(out, y):
    last = [m for m in model.modules() if isinstance(m, nn.Linear)][-1]
    return F.mse_loss(last(out), y)
targets = lambda samples: torch.randn(samples, 3, dtype=torch.float64)
""")
"""A loss that is an own one, a module or a function of torch, and its targets."""

PLAIN_LOSSES = ("cross_entropy", "mse_loss", "CrossEntropyLoss with weights", "own mean of squares")


def _loss(w: Writer) -> list[str]:
    name = w.r.choice(sorted(LOSSES) if w.r.random() < 0.3 else PLAIN_LOSSES)
    w.source.used.append(name)
    return LOSSES[name].splitlines()
