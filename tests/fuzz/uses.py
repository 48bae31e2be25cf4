"""Uses drawn at random: settings that change after a step was recorded, parameters registered in any order, odd
batches, interrupts at any line, mini-batches in parts, damaged files. A call does what a plainer one does, or is
refused and changes nothing.

Case number i of a run with seed s is case 0 of a run with seed s + i. A case takes about 0.1 s.
"""

import contextlib
import copy
import io
import re
import signal
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import altmin
from altmin.cli import run
from altmin.optim import CoActivation

from . import networks, networks_drawn
from .judge import ALLOWED, REFUSED, Judge, all_finite, picture

F64 = torch.float64
RULES: tuple[Callable[[], Any], ...] = (
    lambda: altmin.LocalAdam(0.01, weight_decay=0.01),
    lambda: altmin.LocalSGD(0.05, momentum=0.5),
    lambda: altmin.CoActivationMemory(0.02, every=2),
    lambda: altmin.CoActivationMemory(0.02, every=1, rank=2, weight_decay=0.01, decay_biases=False),
)
TRAINER: dict[str, Callable[[Any], object]] = {
    "rate": lambda am: am.optimizer.param_groups[0].update(lr=0.003),
    "lr": lambda am: setattr(am.weights, "lr", 0.003),
    "weight decay": lambda am: setattr(am.weights, "weight_decay", 0.5),
    "clipping": lambda am: setattr(am.weights, "clip_norm", 0.01),
    "mu": lambda am: setattr(am.penalty, "value", 2.5),
    "increment": lambda am: setattr(am.penalty, "increment", 2.5),
    "penalty": lambda am: setattr(am, "penalty", altmin.Penalty(3.0)),
    "share": lambda am: setattr(am.codes, "share", 0.0),
    "codes": lambda am: setattr(am, "codes", altmin.GradientCodes(share=0.0)),
    "loss": lambda am: setattr(am, "loss", lambda o, y: o.square().mean()),
    "epoch": lambda am: am.end_epoch(),
}
"""What may change of a trainer between two steps."""


def fuzz(count: int, seed: int, failures: list[str]) -> dict[str, int]:
    """Counts the cases of each use, and the calls refused."""
    counters = Counter[str]()
    for number in range(seed, seed + count):
        r = Random(number)
        use = r.choice(sorted(USES))
        judge = Judge(f"uses --seed {number}", failures, [use])
        with torch.random.fork_rng(devices=()), torch.enable_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.manual_seed(number)
            USES[use](r, number, judge)
        counters[use] += 1
        counters["refused"] += judge.refused > 0
    return dict(sorted(counters.items()))


def settings(r: Random, seed: int, judge: Judge) -> None:
    """A network written at random; what is changed between two steps changes the recorded step as the ordinary one."""
    network = networks_drawn.draw(r)
    source = network.source[: network.source.index("def between()")]
    name, ours = r.choice(sorted(networks_drawn.BETWEEN)), r.choice(sorted(TRAINER)) if r.random() < 0.3 else ""
    layers = re.findall(r"self\.(m\d+) = ", source[source.rindex("class Net(") :]) or [""]
    place = ("model[0]." if "nn.Sequential(Net())" in source else "model.") + r.choice(layers)
    lines = [] if ours else networks_drawn.BETWEEN[name].replace("$f", place.rstrip(".")).splitlines()
    body = "\n    ".join(["def between():", "global loss", *lines, "pass"])
    network, judge.drawn = networks_drawn.Network(source + body, network.batches, []), [ours or name, "\n" + source]
    rule, share, ends = r.choice(RULES)(), r.choice((0.0, 0.1)), []
    for recorded in (False, True):
        with networks.made(network, seed) as m:
            options = {"codes": altmin.GradientCodes(share), "weights": copy.deepcopy(rule), "penalty": 1.0}
            try:
                am = altmin.AltMin(m.model, loss=m.loss, **options)
                method = altmin.Recorded(am, fuse=False) if recorded else am
                torch.manual_seed(seed)
                method.step(*m.batches[0])
            except ALLOWED:
                judge.refused += 1
                return
            except Exception as error:
                if recorded:
                    judge.fail("recorded step", f"raised {error!r:.300}")
                return  # what torch itself refuses
            try:
                m.between()
                TRAINER.get(ours, bool)(am)
            except Exception:  # no such module in this network
                return
            done = judge.call(
                "step", lambda f=method, b=m.batches[0]: _synchronized(f, b), lambda m=m: networks.held(m)
            )
            ends.append((done, {name: t.clone() for name, t in m.model.state_dict().items()}))
    (ordinary, expected), (other, found) = ends
    if other is REFUSED or (ordinary is not REFUSED and abs(ordinary) > 1e4):
        return
    if ordinary is REFUSED:
        judge.fail("recorded step", f"was taken, though the ordinary one is refused: {judge.said}")
    elif max((networks.distance(found[name], t) for name, t in expected.items()), default=0) > 1e-6:
        judge.fail("recorded step", "departs from the ordinary one")


def _synchronized(method: Any, batch: tuple[Tensor, Tensor]) -> float:
    loss = float(method.step(*batch).loss)
    getattr(method, "synchronize", bool)()
    return loss


class Odd(nn.Module):
    """A block whose parameters are registered in an order that is drawn."""

    def __init__(self, r: Random, w: int):
        super().__init__()
        parts: list[tuple[str, Callable[[], Any]]] = [
            *((name, lambda: nn.Linear(w, w, bias=r.random() < 0.7)) for name in "abc"),
            *((name, lambda: nn.Parameter(torch.rand(w) + 0.5)) for name in ("scale", "shift")),
            ("norm", lambda: r.choice((nn.LayerNorm, nn.Identity))(w)),
        ]
        for name, make in r.sample(parts, len(parts)):
            setattr(self, name, make())
        self.kind = r.randrange(4)

    def forward(self, x: Any) -> Any:
        if self.kind == 0:
            return x + self.scale * self.b(torch.tanh(self.a(x)))
        if self.kind == 1:
            return self.c(self.norm(F.gelu(self.b(self.a(x)) + self.shift)))
        if self.kind == 2:
            return self.a(x * self.scale + self.shift) + self.b(x)
        return self.norm(F.linear(torch.tanh(x), self.a.weight * self.scale, self.shift))


def net(r: Random) -> nn.Sequential:
    w = r.randint(2, 4)
    inner = [layer for _ in range(r.randint(1, 3)) for layer in (Odd(r, w), r.choice((nn.ReLU, nn.Tanh))())]
    return nn.Sequential(nn.Linear(5, w), *inner, nn.Linear(w, 3)).to(F64)


def batch(samples: int = 8) -> tuple[Tensor, Tensor]:
    return torch.randn(samples, 5, dtype=F64), torch.randint(3, (samples,))


def same(judge: Judge, what: str, one: nn.Module, other: nn.Module) -> None:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    if (off := max(networks.distance(a, b) for a, b in pairs)) > 1e-7:
        judge.fail(what, f"departs by {off:.2g}")


def order(r: Random, seed: int, judge: Judge) -> None:
    """Two members of an ensemble are trained as each alone."""
    models = [model := net(r), copy.deepcopy(model)]
    with torch.no_grad():
        for p in models[1].parameters():
            p.add_(0.3 * torch.randn_like(p))
    rule, share, alone = r.choice(RULES)(), r.choice((0.0, 0.1, 0.5)), copy.deepcopy(models)
    ams = [altmin.AltMin(m, codes=altmin.GradientCodes(share), weights=rule) for m in (*models, *alone)]
    try:
        ensemble: Any = altmin.Ensemble(ams[:2])
    except ValueError:  # parameters that no block uses
        judge.refused += 1
        return
    method = altmin.Recorded(ensemble, fuse=False) if r.random() < 0.3 else ensemble
    for _ in range(3):
        x, y = batch()
        method.step(x, y, each=False)
        for i, am in enumerate(ams[2:]):
            am.step(x, y)
            same(judge, "member of an ensemble", ensemble.member(i), am.model)


def parts(r: Random, seed: int, judge: Judge) -> None:
    """Parts of mini-batches, gathered or accumulated, and skipped ones, are as whole ones and none."""
    model = net(r)
    a, b, c, d = (copy.deepcopy(model) for _ in range(4))
    rule, codes = r.choice(RULES)(), altmin.GradientCodes(share=0.0)
    whole, gathered = (altmin.AltMin(m, codes=codes, weights=rule) for m in (a, b))
    first, second = (CoActivation(m, lr=0.02, every=2, rank=8) for m in (c, d))
    for _ in range(4):
        x, y = batch()
        cuts = sorted(r.sample(range(1, 8), r.randint(0, 3)))
        pieces = [(x[i:j], y[i:j]) for i, j in zip([0, *cuts], [*cuts, 8], strict=True)]
        whole.step(x, y)
        F.cross_entropy(c(x), y).backward()
        if r.random() < 0.5:
            F.cross_entropy(d(3 * x[:5]), y[:5]).backward()
            r.choice((second, d)).zero_grad(set_to_none=r.random() < 0.5)
        for u, v in pieces:
            gathered.gather(u, v)
            (F.cross_entropy(d(u), v, reduction="sum") / 8).backward()
        gathered.apply()
        for optimizer in (first, second):
            optimizer.step()
            optimizer.zero_grad(set_to_none=r.random() < 0.5)
        same(judge, "gathered parts", b, a)
        same(judge, "accumulated parts", d, c)


ODD: dict[str, Callable[[Tensor], Tensor]] = {
    "integers": lambda t: t.long(),
    "truth values": lambda t: t > 0,
    "float64": lambda t: t.double(),
    "float32": lambda t: t.float(),
    "bytes": lambda t: t.to(torch.uint8),
    "not contiguous": lambda t: t.repeat_interleave(2, 0)[::2],
    "expanded": lambda t: t[:1].expand(t.shape),
    "NaN": lambda t: t.double().masked_fill(torch.rand(t.shape) < 0.2, torch.nan),
    "infinite": lambda t: t.float().masked_fill(torch.rand(t.shape) < 0.2, torch.inf),
    "huge": lambda t: t * 10**15,
    "with gradient": lambda t: t.clone().requires_grad_(t.is_floating_point()),
    "a column": lambda t: t.unsqueeze(-1),
    "short": lambda t: t[:-1],
}


class Two(nn.Module):
    """Takes numbers, tokens and a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.a, self.b = nn.Embedding(5, 3), nn.Linear(4, 3), nn.Linear(3, 3)

    def forward(self, x: Tensor, t: Tensor, mask: Tensor) -> Any:
        return self.b(torch.where(mask, torch.tanh(self.a(x)) + self.tokens(t), 0.1))


def batches(r: Random, seed: int, judge: Judge) -> None:
    """An odd batch: one step of gradient descent is autograd's, or refused."""
    several, kind, n = r.random() < 0.5, r.choice((torch.float32, F64)), r.choice((1, 5, 6))
    model = (Two() if several else nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 3))).to(kind)
    values = [torch.randn(n, 4, dtype=kind), torch.randint(5, (n,)), torch.rand(n, 3) > 0.4][: 3 if several else 1]
    loss, y = r.choice(((nn.CrossEntropyLoss(), torch.randint(3, (n,))), (nn.MSELoss(), torch.rand(n, 3, dtype=kind))))
    values.append(y)
    for i in range(len(values)):
        if r.random() < 0.4:
            judge.drawn.append(f"{i}: {(name := r.choice(sorted(ODD)))}")
            values[i] = ODD[name](values[i])
    *xs, y = values
    plain, error, wanted = copy.deepcopy(model), None, []
    try:
        value = loss(plain(*(x.detach() for x in xs)), y.detach())
        value.backward()
        wanted = [p.detach() - (torch.zeros_like(p) if p.grad is None else p.grad) for p in plain.parameters()]
    except Exception as reason:
        error = reason
    weights, codes = altmin.LocalSGD(1.0, momentum=0.0), altmin.GradientCodes(share=0.0)
    inputs = ["x", "t", "mask"] if several else None
    am = altmin.AltMin(model, loss=loss, codes=codes, weights=weights, inputs=inputs)
    x = tuple(xs) if several else xs[0]
    method: Any = altmin.Recorded(am, fuse=False) if r.random() < 0.3 and not several else am
    one = r.choice((lambda: _synchronized(method, (x, y)), lambda: altmin.fit(am, (x, y), epochs=1, batch_size=n)))
    done = judge.call("odd batch", one, lambda: (am.model, am.state_dict(), values if all_finite(values) else 0))
    if done is REFUSED:
        return
    if error is not None:
        judge.fail("odd batch", f"was trained, though autograd refuses it: {error!r:.200}")
    elif max(map(networks.distance, model.parameters(), wanted)) > (1e-3 if kind is torch.float32 else 1e-7):
        judge.fail("odd batch", "departs from autograd's step")


def interrupts(r: Random, seed: int, judge: Judge) -> None:
    """An interrupt at any line leaves a step, or its gathering, taken or not."""
    am, fresh = altmin.AltMin(net(r), weights=r.choice(RULES)(), check=r.random() < 0.3), batch()
    if r.random() < 0.7:
        am.step(*fresh)
    call: Callable[[Any], Any] = r.choice((lambda am: am.step(*fresh), lambda am: am.gather(*fresh)))
    one, other = copy.deepcopy(am), copy.deepcopy(am)
    lines = _interrupted(lambda: call(other))
    _interrupted(lambda: call(one), r.randint(1, max(lines, 1)))
    on = torch.is_grad_enabled()
    torch.set_grad_enabled(True)
    states = [picture((each.model, each.state_dict())) for each in (one, am, other)]
    if not on or states[0] not in states[1:]:
        judge.fail("interrupt", "left a state in between, or gradients off")


def _interrupted(call: Callable[[], Any], line: int = -1) -> int:
    """Call with a SIGINT at the line-th line that is executed; return how many there were."""
    count, usual = 0, sys.gettrace()

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal count
        count += event == "line"
        if event == "line" and count == line:
            signal.raise_signal(signal.SIGINT)
        return trace

    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(usual)
    return count


ROWS = [f"{n % 7}.5,{'north' if n % 3 else 'south'},{n % 2}" for n in range(40)]
TABLES: dict[str, Callable[[str, Random], str]] = {
    "a byte order mark": lambda t, r: "\ufeff" + t,
    "quotes": lambda t, r: t.replace("north", '"north"'),
    "semicolons": lambda t, r: t.replace(",", ";"),
    "Windows lines": lambda t, r: t.replace("\n", "\r\n"),
    "empty lines": lambda t, r: t.replace("\n", "\n\n"),
    "a cell too many": lambda t, r: t + "1,north,1,5\n",
    "a cell too few": lambda t, r: t + "1\n",
    "missing values": lambda t, r: t.replace(".5,", ",").replace("0,", "NA,"),
    "an open quote": lambda t, r: t + '1,"north,1\n',
    "cut": lambda t, r: t[: r.randrange(len(t))],
    "a letter changed": lambda t, r: t[: (i := r.randrange(len(t)))] + chr(r.randrange(300)) + t[i + 1 :],
}
HARMLESS = ("a byte order mark", "quotes", "semicolons", "Windows lines", "empty lines")


@cache
def _trained() -> tuple[bytes, str]:
    """Return the model file of a table, and the predictions for its rows."""
    with tempfile.TemporaryDirectory() as folder:
        table, model = Path(folder) / "t.csv", Path(folder) / "m"
        table.write_text("\n".join(["size,side,dear", *ROWS, ""]))
        options = ["--target", "dear", "--model", "mlp-1x4", "--epochs", "1", "--threads", "1"]
        code, said = _said("train", "--data", table, "--save-model", model, *options)
        assert code == 0, said
        assert _said("predict", model, "--data", table, "--out", f"{table}.out")[0] == 0
        return model.read_bytes(), Path(f"{table}.out").read_text()


def _said(*arguments: Any) -> tuple[int, str]:
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
        return run([str(each) for each in arguments]), text.getvalue()


def files(r: Random, seed: int, judge: Judge) -> None:
    """A damaged model file is refused, an odd table is read or refused, and nothing is half-written."""
    content, expected = _trained()
    odd, text = r.choice(sorted(TABLES)), "\n".join(["size,side,dear", *ROWS, ""])
    damaged = r.random() < 0.3
    if damaged:
        i = r.randrange(len(content))
        content = r.choice((content[:i], content[:i] + bytes([content[i] ^ r.randint(1, 255)]) + content[i + 1 :]))
    judge.drawn.append("damaged model" if damaged else odd)
    with tempfile.TemporaryDirectory() as folder:
        table, model, out = (Path(folder) / name for name in ("t.csv", "m", "out"))
        table.write_text(text if damaged else TABLES[odd](text, r), newline="")
        model.write_bytes(content)
        try:
            code, said = _said("predict", model, "--data", table, "--out", out)
        except Exception as error:
            judge.fail("predict", f"raised {error!r:.300}")
            return
        judge.refused += code == 2
        if code not in (0, 2) or (code == 2) == out.exists() or (damaged and code != 2):
            judge.fail("predict", f"ended with {code}: {said[:300]}")
        elif sorted(p.name for p in Path(folder).iterdir()) != sorted(["t.csv", "m", *["out"] * (code == 0)]):
            judge.fail("predict", "left other files")
        elif odd in HARMLESS and not damaged and (code or out.read_text() != expected):
            judge.fail("predict", f"departs: {said[:300]}")


USES: dict[str, Callable[[Random, int, Judge], None]] = {
    each.__name__: each for each in (settings, order, parts, batches, interrupts, files)
}
