"""Estimators for tables and for streams under drawn calls, many of them wrong: a call succeeds with finite predictions,
or is refused and leaves everything as it was, bit for bit. A prediction changes nothing.

Case number i of a run with seed s is case 0 of a run with seed s + i: `python -m tests.trial estimators --seed S
--counts 1` repeats it.
"""

import datetime
import decimal
import math
import types
from collections.abc import Callable, Mapping
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy import sparse
from torch import Tensor

from altmin.sklearn import AltMinClassifier, AltMinRegressor
from altmin.stream import OnlineClassifier, OnlineRegressor

from .api import ended
from .judge import ALLOWED, REFUSED, Judge, short

HUGE = 10**400


class Plain:
    """An object that is no number."""

    def __repr__(self) -> str:
        return "Plain()"


ODD = (None, math.nan, math.inf, -math.inf, 1e99, 1e101, -1e160, 1e308, HUGE, "red", "", [1.0], 1 + 1j, True)
ODD = (*ODD, decimal.Decimal("1.5"), decimal.Decimal("NaN"), Fraction(1, 3), np.float32(2.0), np.int64(3), {}, Plain())
ODD = (
    *ODD,
    torch.tensor(1.0),
    torch.zeros(2),
    np.zeros(2),
    np.zeros(1),
    torch.zeros(1),
    pd.NA,
    pd.NaT,
    datetime.date(2020, 1, 1),
    b"1",
    (),
)
"""Values that a feature, a target or a weight may have: some are numbers."""
METHODS = ("am-adam", "am-adam", "am-mem", "am-mem-fitted", "am-sgd", "adam", "sgd")
STREAMS = ("am-adam", "am-adam", "am-mem-fitted", "am-sgd", "adam", "sgd")
OTHERS = ("admm", "am-adam-offline", "bcd", "dtp", "pc-alm", "predictive-coding", "proxprop", "straight-through")
"""Methods for tables of which some take no regression, no rate or no network without hidden layers."""
RATES = (None, 1e-3, 0.05, 0.0, 10.0, 1e4, 1e30, 1e200)
CALM = (None, 1e-3, 0.05, 0.0)
"""Learning rates by which nothing diverges."""


def trial(count: int, seed: int, failures: list[str]) -> dict[str, int]:
    """Runs cases until at least `count` calls were made, which are counted, with those refused."""
    counters = {"calls": 0, "refused": 0, "cases": 0}
    while counters["calls"] < count:
        judge = case(seed + counters["cases"], failures)
        counters["cases"] += 1
        counters["calls"] += judge.calls
        counters["refused"] += judge.refused
    return counters


def case(seed: int, failures: list[str]) -> Judge:
    """One estimator, and several calls of it."""
    r = Random(seed)
    kind = r.choice((Table, Stream))
    judge = (TableJudge if kind is Table else Judge)(f"estimators --seed {seed}", failures)
    with torch.random.fork_rng(devices=()), ended(judge), np.errstate(all="ignore"):
        kind(r, judge, r.choice((0.0, 0.1, 0.3))).run()
    return judge


class TableJudge(Judge):
    """A judge of calls whose arguments scikit-learn checks too, in its own words."""

    def _judge_message(self, name: str, error: Exception) -> None:
        if len(str(error)) <= 10:
            self.fail(name, f"was refused in other than a sentence: {short(error)}")


class Drawn:
    """What both kinds of cases share: an estimator, calls, and their judgement. wrong: how often a part of a call is
    drawn wrong. fits: whether the call is one that must succeed. usual: whether everything learnt so far was such."""

    queries: tuple[str, ...]
    made: Any

    def __init__(self, r: Random, judge: Judge, wrong: float):
        self.r, self.judge, self.wrong, self.fits, self.usual = r, judge, wrong, True, True
        self.classifies = r.random() < 0.5

    def run(self) -> None:
        self.make()
        if self.made is REFUSED:
            return
        for _ in range(self.r.randint(2, 8)):
            self.fits = True
            self.change() if self.r.random() < 0.7 else self.ask()

    def make(self) -> None:
        raise NotImplementedError

    def change(self) -> None:
        raise NotImplementedError

    def ask(self) -> None:
        raise NotImplementedError

    def good(self) -> Any:
        """A valid query's argument."""
        raise NotImplementedError

    def learn(self, name: str, call: Callable[[], Any], shown: Callable[[], Any], given: tuple[Any, ...]) -> None:
        """A call that changes the estimator; shown: a query about what it was given."""
        before, answers = self.state(), self.answers()
        if self.judge.call(name, call, given=given) is REFUSED:
            if self.state() != before:
                self.judge.fail(name, "was refused but has changed the state")
            if self.answers() != answers:
                self.judge.fail(name, "was refused, and predictions are others now")
            if self.fits:
                self.judge.fail(name, "was refused though nothing is wrong with it")
            return
        self.usual = self.fits and (self.usual or name == "fit")
        if self.query(f"a query after {name}", shown) is REFUSED and self.must_predict():
            self.judge.fail(name, "succeeded, and what it was given cannot be predicted")

    def state(self) -> str:
        return everything(vars(self.made))

    def must_predict(self) -> bool:
        """Whether what was learnt without an error can be predicted, too."""
        raise NotImplementedError

    def query(self, name: str, call: Callable[[], Any]) -> Any:
        """A call that changes nothing, and gives finite numbers or is refused."""
        before = self.state()
        found = self.judge.call(name, call)
        if self.state() != before:
            self.judge.fail(name, "has changed the estimator")
        labels = found is REFUSED or (self.classifies and not isinstance(found, Mapping) and np.ndim(found) < 2)
        if not labels and not all(math.isfinite(each) for each in numbers(found)):
            self.judge.fail(name, "gave numbers that are not finite")
        return found

    def answers(self) -> str:
        """All predictions for a valid query, in words."""
        return ", ".join(everything(outcome(call)) for call in self.asked(self.good())) if self.is_fitted() else ""

    def asked(self, x: Any) -> list[Callable[[], Any]]:
        return [lambda name=name: getattr(self.made, name)(x) for name in self.queries]

    def is_fitted(self) -> bool:
        raise NotImplementedError

    def is_wrong(self) -> bool:
        """Whether a part of a call is drawn wrong, by which it may be refused."""
        if self.r.random() >= self.wrong:
            return False
        self.fits = False
        return True


class Table(Drawn):
    """scikit-learn's estimators."""

    def make(self) -> None:
        r = self.r
        self.options: dict[str, Any] = {
            "hidden": r.choice(((3,), (), (4, 3))),
            "method": r.choice(OTHERS if r.random() < 0.2 else METHODS),
            "lr": r.choice(RATES if r.random() < self.wrong else CALM),
            "batch_size": r.choice((1, 3, 64)),
            "epochs": r.choice((1, 2, 3)),
            "standardise": r.random() < 0.7,
            "early_stopping": r.random() < 0.2,
            "validation_fraction": 0.3,
            "random_state": r.randrange(100),
        }
        self.queries = ("predict", "predict_proba") if self.classifies else ("predict",)
        kind = AltMinClassifier if self.classifies else AltMinRegressor
        self.judge.drawn.append(f"{kind.__name__}({', '.join(f'{n}={v!r}' for n, v in self.options.items())})")
        self.made: Any = kind(**self.options)
        self.columns = 3
        # plain gradient steps diverge along columns of a thousand, and at the method's own rate
        calm = "sgd" not in self.made.method or (self.made.standardise and self.made.lr is not None)
        self.sound = calm and self.made.lr in CALM and self.made.method in METHODS

    def must_predict(self) -> bool:
        return True  # otherwise it is `Diverged`

    def is_fitted(self) -> bool:
        return hasattr(self.made, "module_")

    def good(self) -> Any:
        return np.linspace(-1, 1, 4 * self.made.n_features_in_).reshape(4, -1)

    def change(self) -> None:
        r, name = self.r, self.r.choice(("fit", "partial_fit"))
        if self.is_wrong():
            self.settings()
        self.fits &= self.sound
        if name == "fit" and r.random() < 0.3:
            self.columns = r.choice((2, 3, 5))
        elif self.is_fitted() and name == "partial_fit":
            self.columns = self.made.n_features_in_
        n = r.choice((12, 12, 20, 2, 1))
        X, y = self.table(n), self.targets(n)
        more: dict[str, Any] = {}
        if r.random() < 0.3:
            w = np.array([r.choice((0.5, 1.0, 3.0)) for _ in range(n)])
            more["sample_weight"] = r.choice((spoilt(r, w), w[1:], HUGE, "w", -w, 0 * w)) if self.is_wrong() else w
        if name == "partial_fit" and self.classifies and (r.random() < 0.3 or not self.is_fitted()):
            more["classes"] = r.choice(([0, 1], [0, "a"], None, 3, [HUGE, 1, 0])) if self.is_wrong() else [0, 1, 2]
        self.fits &= n >= 4 or name == "partial_fit"
        self.fits &= name == "fit" or not self.is_fitted() or self.usual
        self.judge.drawn.append(f"{name}(X={X!r:.80}, y={y!r:.80}, {more!r:.80})".replace("\n", " "))
        form = self.form(X)
        call, shown = lambda: getattr(self.made, name)(form, y, **more), self.asked(form)[-1]
        self.learn(name, call, shown, (form, y, more))

    def ask(self) -> None:
        columns = self.columns
        self.columns = getattr(self.made, "n_features_in_", 3)
        X, name = self.form(self.table(4)), self.r.choice((*self.queries, "inputs_of"))
        self.columns = columns
        self.judge.drawn.append(f"{name}({X!r:.80})".replace("\n", " "))
        self.query(name, lambda: getattr(self.made, name)(X))

    def settings(self) -> None:
        """Other settings than before, most of them wrong."""
        wrong: Mapping[str, tuple[Any, ...]] = {
            "hidden": (3, "a", (0,), None, (HUGE,)),
            "method": ("am-adm", None, "sgd", "adam", "am-adam"),
            "lr": (-1.0, math.nan, "fast", HUGE, *RATES),
            "batch_size": (0, 2.5, None, HUGE),
            "weight_decay": (-1.0, "none", 1e200, HUGE),
            "options": (3, {"sahre": 1}, {"share": 0.5}),
            "tol": (-1, HUGE, None),
            "network": (7, torch.nn.Linear(3, 3), scripted),
        }
        name = self.r.choice(sorted(wrong))
        value, self.sound = self.r.choice(wrong[name]), False
        self.made.set_params(**{name: value})
        self.judge.drawn.append(f"{name}={value!r:.30}")

    def table(self, n: int) -> Any:
        """Rows of numbers, or something else."""
        r = self.r
        X = np.array([[r.gauss(0, 1) for _ in range(self.columns)] for _ in range(n)])
        if not self.is_wrong():
            return X * r.choice((1.0, 1.0, 1e-3, 1e3))
        wider = np.hstack([X, X])
        return r.choice((spoilt(r, X), spoilt(r, X), X * 1e160, X * 1e308, X[1:], X[0], wider, None, "X", X + 1j, [[]]))

    def targets(self, n: int) -> Any:
        r = self.r
        y = np.array([i % 3 if self.classifies else r.gauss(0, 10) for i in range(n)])
        if not self.is_wrong():
            return y
        return r.choice((spoilt(r, y), spoilt(r, y), y * 1e160, y[1:], np.stack([y, y], 1), None, "y", y + 1j, y * 0.3))

    def form(self, X: Any) -> Any:
        """The same table as another type."""
        if not isinstance(X, np.ndarray) or X.ndim != 2 or X.dtype.kind != "f":
            return X
        frame = pd.DataFrame(X, columns=[f"c{i}" for i in range(X.shape[1])])
        return self.r.choice((X, X, X.tolist(), sparse.csr_array(X), frame if self.is_wrong() else X))


class Stream(Drawn):
    """river's estimators."""

    def make(self) -> None:
        r = self.r
        self.options: dict[str, Any] = {
            "hidden": r.choice(((3,), (), (4, 3))),
            "method": r.choice(STREAMS),
            "lr": r.choice(RATES if r.random() < self.wrong else CALM),
            "standardise": r.random() < 0.6,
            "absent": r.choice(("mean", "zero")),
            "forget": r.choice((1.0, 0.9, 1e-3)),
            "batch_size": r.choice((1, 1, 3)),
            "max_features": r.choice((None, None, 4)),
            "seed": r.randrange(100),
        }
        ones, many = ["predict_one"], ["predict_many"]
        if self.classifies:
            ones, many = [*ones, "predict_proba_one"], [*many, "predict_proba_many"]
        self.queries, self.tables = tuple(ones), tuple(many)
        kind = OnlineClassifier if self.classifies else OnlineRegressor
        self.judge.drawn.append(f"{kind.__name__}({', '.join(f'{n}={v!r}' for n, v in self.options.items())})")
        self.made: Any = kind(**self.options)

    def must_predict(self) -> bool:
        return self.usual

    def is_fitted(self) -> bool:
        return self.made.network is not None

    def good(self) -> Any:
        return {"a": 0.3, "b": -1.0, "z": 2.0}

    def change(self) -> None:
        self.fits &= self.usual and self.options["lr"] in CALM
        if self.r.random() < 0.5:
            x, y = self.sample(), self.target()
            self.judge.drawn.append(f"learn_one({x!r:.100}, {y!r:.30})".replace("\n", " "))
            call, shown = lambda: self.made.learn_one(x, y), lambda: getattr(self.made, self.queries[-1])(x)
        else:
            n = self.r.choice((1, 2, 5, 0))
            x, y = self.frame(n), self.column(n)
            self.judge.drawn.append(f"learn_many({x!r:.150}, {y!r:.80})".replace("\n", " "))
            call, shown = lambda: self.made.learn_many(x, y), lambda: getattr(self.made, self.tables[-1])(x)
        self.fits &= self.made.max_features is None
        self.learn("learn", call, shown, (x, y))

    def ask(self) -> None:
        name = self.r.choice((*self.queries, *self.tables))
        x = self.frame(2) if name in self.tables else self.sample()
        self.judge.drawn.append(f"{name}({x!r:.150})".replace("\n", " "))
        self.query(name, lambda: getattr(self.made, name)(x))

    def sample(self) -> Any:
        r = self.r
        x: Any = {name: r.gauss(1, 2) for name in r.sample("abcd", r.randint(0, 4))}
        if self.is_wrong():
            x[r.choice(("a", "new", 3, (1, 2), None, math.nan))] = r.choice(ODD)
        return r.choice(([1.0], None, 3, "ab", [[1]], pd.Series(x, dtype=object))) if self.is_wrong() else x

    def target(self) -> Any:
        good = self.r.choice(("yes", "no", 3)) if self.classifies else self.r.gauss(3, 5)
        return self.r.choice(ODD) if self.is_wrong() else good

    def frame(self, n: int) -> Any:
        r = self.r
        names = r.sample("abcd", r.randint(0, 4))
        X: Any = pd.DataFrame({name: [r.gauss(1, 2) for _ in range(n)] for name in names}, index=range(7, 7 + n))
        if n and names and self.is_wrong():
            X = X.astype(object)
            X[r.choice(names)] = [r.choice((1.0, *ODD)) for _ in range(n)]
        if self.is_wrong():
            X = r.choice(
                (None, [[1.0]], X.to_numpy(), pd.concat([X, X], axis=1), X.rename(columns={"a": 5, "b": None}))
            )
        return X

    def column(self, n: int) -> Any:
        y = [self.target() for _ in range(n)]
        if self.is_wrong():
            return self.r.choice((y[1:], None, 3, iter(y), pd.DataFrame({"y": y}), {"y": y}))
        return self.r.choice((y, pd.Series(y, dtype=object)))


def scripted(inputs: int, outputs: int) -> torch.nn.Module:
    return torch.jit.script(torch.nn.Linear(inputs, outputs))


def outcome(call: Callable[[], Any]) -> Any:
    """What a call gives, or its error's words."""
    try:
        return call()
    except ALLOWED as error:
        return short(error)


def spoilt(r: Random, values: np.ndarray) -> Any:
    """An array of objects, one of which is odd; or of numbers, if it is a number."""
    copy = values.astype(object)
    copy.flat[r.randrange(copy.size)] = r.choice([each for each in ODD if np.ndim(each) == 0])
    try:
        return copy.astype(np.float64) if r.random() < 0.5 else copy
    except (TypeError, ValueError, OverflowError, RuntimeError, decimal.InvalidOperation):
        return copy


def numbers(found: Any) -> list[float]:
    """The numbers that a query gave."""
    if isinstance(found, Mapping):
        return [each for value in found.values() for each in numbers(value)]
    if isinstance(found, Tensor | pd.DataFrame | pd.Series):
        found = np.asarray(found)
    if isinstance(found, np.ndarray):
        return found.ravel().tolist() if found.dtype.kind in "fc" else []
    return [found] if isinstance(found, float) else []


def everything(value: Any, seen: dict[int, Any] | None = None) -> str:
    """All that can be reached from an object, in words that are the same if all of it is, bit for bit."""
    seen = {} if seen is None else seen
    if isinstance(value, Tensor):
        return f"{value.dtype}{tuple(value.shape)}{value.detach().numpy().tobytes()!r}"
    if isinstance(value, str | bytes | int | float | complex | None):
        return repr(value) if not isinstance(value, int) or abs(value) < HUGE else "huge"
    if isinstance(value, type | types.FunctionType | types.BuiltinFunctionType | types.ModuleType | torch.dtype):
        return str(getattr(value, "__qualname__", value))
    if id(value) in seen:
        return f"<{seen[id(value)][0]}>"
    seen[id(value)] = len(seen), value  # which keeps it, and so its id, from being used again
    if isinstance(value, np.ndarray | np.generic):
        return f"{value.dtype}{value.shape}{value.tolist() if value.dtype.kind == 'O' else value.tobytes()}"
    if isinstance(value, np.random.Generator):
        return repr(value.bit_generator.state)
    if isinstance(value, Mapping):
        pairs = [f"{everything(key, seen)}: {everything(each, seen)}" for key, each in value.items()]
        return f"{type(value).__name__}{{{', '.join(pairs)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(everything(each, seen) for each in value)}]"
    if isinstance(value, set | frozenset):
        return f"{{{', '.join(sorted(everything(each, seen) for each in value))}}}"
    inside = getattr(value, "__dict__", None)
    return f"{type(value).__name__}({'' if inside is None else everything(dict(inside), seen)})"
