"""Run times (appendix): fully connected nets over 1,500 batches, LeNet-5 over 450; and the memory that they take."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, product
from statistics import mean, median
from typing import Any

from altmin import Recorded
from altmin.training.runs import build, train_runs
from altmin.training.samples import Samples
from reproduction import Claim, Figure, Finding, Results, Row, Run, Setting, Statement, Tick
from reproduction.speed.measure import step_bytes


@dataclass(frozen=True)
class Timing(Run):
    """A run that is measured, one seed after the other and alone. recorded: with recorded steps, on a GPU only. The
    first epoch, in which kernels are loaded and steps recorded, does not count."""

    recorded: bool = False

    def config(self) -> Row:
        return {"measured": "time", **super().config(), "recorded": self.recorded}

    def lacking(self, setting: Setting) -> str:
        no_gpu = self.recorded and setting.device.type != "cuda"
        return "recorded steps need a GPU (--device cuda)" if no_gpu else super().lacking(setting)

    def make(self, seeds: Sequence[int], setting: Setting, tick: Tick) -> list[Row]:
        """Return rows as of a run, with "peak_memory": the most bytes of the GPU that model, optimizer and a few steps
        take; None elsewhere."""
        (train, test), rows = self.samples(setting), list[Row]()
        for seed in seeds:
            run = replace(self, device=setting.device, record=self.recorded, seed=seed)
            peak = run.peak_memory(train) if setting.device.type == "cuda" else None
            rows += [
                {**setting.about(train), **row, "peak_memory": peak} for row in train_runs([run], train, test, tick)
            ]
        return rows

    def peak_memory(self, train: Samples) -> int:
        plain = partial(build, self)
        make = (lambda: Recorded(plain())) if self.recorded else plain
        return step_bytes(make, (train[0][: self.batch_size], train[1][: self.batch_size]), plain, self.recorded)[2]

    def points(self, row: Row, axis: str) -> list[tuple[float, float]]:
        """Return seconds since the end of the first epoch against "batches" or "epochs" since then."""
        per_epoch = -(-row["rows"] // self.batch_size)
        return [(n * per_epoch if axis == "batches" else n, at) for n, at in enumerate(times_since(row))]


def times_since(row: Row) -> list[float]:
    """Return the seconds since the first epoch at the ends of epochs."""
    return list(accumulate((point["seconds"] for point in row["epochs"][1:]), initial=0.0))


def unevenness(row: Row) -> float:
    """Return the largest distance of the time since the first epoch from a straight line, as a part of the whole: 0 if
    time is linear in batches.

    >>> unevenness({"epochs": [{"seconds": s} for s in (9, 1, 3)]})
    0.25
    """
    times = times_since(row)
    return max(abs(at / times[-1] - n / (len(times) - 1)) for n, at in enumerate(times))


METHODS = ("am-adam", "am-sgd", "am-mem-fitted", "adam", "sgd")
NETS: dict[str, dict[str, Any]] = {
    "mlp-2x100": {"limit": 10_000, "epochs": 31},  # 50 batches an epoch; the first epoch does not count
    "mlp-2x500": {"limit": 10_000, "epochs": 31},
    "lenet5": {"limit": 6_400, "epochs": 10, "batch_size": 128},  # 450 batches after the first epoch
}
STATED = {"mlp-2x100": 9.6 / 8.7, "mlp-2x500": 9.6 / 8.7, "lenet5": 443 / 440}
"""The paper's time of AM over Adam's."""


def timing(net: str, method: str, recorded: bool) -> Timing:
    title = f"{net}, {'recorded' if recorded else 'ordinary'} steps"
    return Timing(method=method, model=net, recorded=recorded, title=title, seeds=2, **NETS[net])


TIMES = {
    (net, method, recorded): timing(net, method, recorded)
    for recorded, net, method in product((False, True), NETS, METHODS)
    if (net, method) != ("lenet5", "am-mem-fitted") and not (recorded and method in ("am-sgd", "sgd"))
}


def as_fast(recorded: bool) -> Callable[[Results], Finding]:
    def seconds(results: Results, net: str, method: str) -> float:
        """Return the mean over seeds of the median time of an epoch, without the first."""
        rows = results.all(TIMES[net, method, recorded])
        return mean(median(point["seconds"] for point in row["epochs"][1:]) for row in rows)

    def judge(results: Results) -> Finding:
        found = {net: seconds(results, net, "am-adam") / seconds(results, net, "adam") for net in NETS}
        text = "AM-Adam/Adam on one H200: " + ", ".join(f"{net} {value:.2f}" for net, value in found.items())
        fast = all(value <= STATED[net] for net, value in found.items())
        if recorded:
            return Finding(text, "", ours=fast)
        why = "AM starts more and smaller operations than backprop, and the processor cannot start them fast enough"
        return Finding(text, *(("reproduced",) if fast else ("not reproduced", why)))

    return judge


def linear(results: Results) -> Finding:
    bent = [unevenness(row) for run in TIMES.values() for row in results.all(run)]
    text = f"off a straight line by {median(bent):.3f} of the whole (median), {max(bent):.3f} (most)"
    return Finding(text, "reproduced") if median(bent) < 0.05 else Finding(text, "not reproduced", "it bends by more")


def memory_like_sgd(results: Results) -> Finding:
    def peak(net: str, method: str) -> float:  # the first run of a process also has the libraries' workspaces
        return min(row["peak_memory"] for row in results.all(TIMES[net, method, False]))

    found = {net: peak(net, "am-sgd") / peak(net, "sgd") for net in NETS}
    text = "peak memory AM-SGD/SGD: " + ", ".join(f"{net} {value:.2f}" for net, value in found.items())
    why = "a step stores the codes and a residual beside what SGD stores, and these nets have few weights"
    return Finding(text, "reproduced") if max(found.values()) <= 1.5 else Finding(text, "not reproduced", why)


FASTER = "AM-Adam's time over Adam's is at most the paper's ratio, 1.10 for fully connected nets and 1.01 for LeNet-5"
TIME = [
    Statement("with steps recorded as CUDA graphs, AM-Adam takes about as long as Adam", FASTER, as_fast(True)),
    Statement("with ordinary steps, AM-Adam takes about as long as Adam", FASTER, as_fast(False)),
    Statement(
        "run times grow linearly with mini-batches",
        "over all runs the median of the largest distance from a straight line is below 0.05 of the whole time",
        linear,
    ),
]
MEMORY = Statement(
    "one set of auxiliary variables, no multipliers: memory like SGD's",
    "a step of AM-SGD takes at most 1.5 times the peak memory of one of SGD, on each net",
    memory_like_sgd,
)
FIGURES = [
    Figure(
        name="runtimes",
        title="Seconds of training after the first epoch",
        runs=list(TIMES.values()),
        axes=("batches", "epochs"),
        minutes=4,
        measure="seconds",
        claims=[
            Claim("C15", "run time like Adam's, linear in batches", "9.6/8.7 s (30 epochs), 443/440 s (LeNet-5)", TIME),
            Claim("C17", "memory like SGD's: one set of auxiliary variables, no multipliers", "no numbers", [MEMORY]),
        ],
        quick=lambda run: None if run.recorded else run.reduced(),
    )
]
