"""Run times (appendix): fully connected nets over 1,500 batches, LeNet-5 over 450; and the memory that they take."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, product
from statistics import mean, median
from typing import Any

from altmin.runners import precision
from altmin.runners.recorded import recorded
from altmin.training.config import RunConfig
from altmin.training.runs import build, train_runs
from altmin.training.samples import Samples
from reproduction import Claim, Figure, Finding, Results, Run, Statement, statement
from reproduction.measurement import Row, Setting, Tick
from reproduction.speed.measure import step_bytes


@dataclass(frozen=True)
class Timing(Run):
    """A run that is measured, one seed after the other and alone. recorded: with recorded steps, on a GPU only. The
    first epoch, in which kernels are loaded and steps recorded, does not count."""

    recorded: bool = False

    def config(self) -> dict[str, Any]:
        return {"measured": "time", **super().config(), "recorded": self.recorded}

    def lacking(self, setting: Setting) -> str:
        no_gpu = self.recorded and setting.device.type != "cuda"
        return "recorded steps need a GPU (--device cuda)" if no_gpu else super().lacking(setting)

    def make(self, seeds: Sequence[int], setting: Setting, tick: Tick) -> list[Row]:
        """Rows as of a run, with "peak_memory": the most bytes of the GPU that model, optimizer and a few steps take;
        None elsewhere."""
        (train, test), rows = self.both(setting), list[Row]()
        for seed in seeds:
            run = replace(self, device=setting.device, record=self.recorded, seed=seed)
            peak = _peak_memory(run, train)
            rows += [{**row, "peak_memory": peak} for row in train_runs([run], train, test, tick)]
        return [{**setting.about(train), **row} for row in rows]

    def points(self, row: Row, axis: str) -> list[tuple[float, float]]:
        """Seconds since the end of the first epoch against "batches" or "epochs" since then."""
        per_epoch = -(-row["rows"] // self.batch_size)
        seconds = accumulate((point["seconds"] for point in row["epochs"][1:]), initial=0.0)
        return [(n * per_epoch if axis == "batches" else n, at) for n, at in enumerate(seconds)]


def seconds_per_epoch(row: Row) -> float:
    """The median over all epochs but the first."""
    return float(median(point["seconds"] for point in row["epochs"][1:]))


def unevenness(row: Row) -> float:
    """The largest distance of the time since the first epoch from a straight line, as a part of the whole: 0 if time is
    linear in batches.

    >>> unevenness({"epochs": [{"seconds": s} for s in (9, 1, 3)]})
    0.25
    """
    times = list(accumulate((point["seconds"] for point in row["epochs"][1:]), initial=0.0))
    return max(abs(at / times[-1] - n / (len(times) - 1)) for n, at in enumerate(times))


def _peak_memory(run: RunConfig, train: Samples) -> int | None:
    if run.device.type != "cuda":
        return None
    x, y = (part[: run.batch_size] for part in train)
    plain = partial(build, run)
    with precision.using(run.precision or "float32"):
        return step_bytes(lambda: recorded(plain(), run.record, run.batch_size), (x, y), plain, bool(run.record))[2]


METHODS = ("am-adam", "am-sgd", "am-mem-fitted", "adam", "sgd")
NETS: dict[str, dict[str, Any]] = {
    "mlp-2x100": {"limit": 10_000, "epochs": 31},  # 50 batches an epoch; the first epoch does not count
    "mlp-2x500": {"limit": 10_000, "epochs": 31},
    "lenet5": {"limit": 6_400, "epochs": 10, "batch_size": 128},  # 450 batches after the first epoch
}
TIMES = {
    (net, method, recorded): Timing(
        *(method, net),
        recorded=recorded,
        title=f"{net}, {'recorded' if recorded else 'ordinary'} steps",
        seeds=2,
        **NETS[net],
    )
    for recorded, net, method in product((False, True), NETS, METHODS)
    if (net, method) != ("lenet5", "am-mem-fitted") and not (recorded and method in ("am-sgd", "sgd"))
}


def ratios(results: Results, net: str, recorded: bool, method: str = "am-adam", rival: str = "adam") -> float:
    """The mean time of an epoch, over that of a rival."""
    return mean(map(seconds_per_epoch, results.all(TIMES[net, method, recorded]))) / mean(
        map(seconds_per_epoch, results.all(TIMES[net, rival, recorded]))
    )


STATED = {"mlp-2x100": 9.6 / 8.7, "mlp-2x500": 9.6 / 8.7, "lenet5": 443 / 440}
"""The paper's time of AM over Adam's."""


def as_fast(recorded: bool) -> Callable[[Results], Finding]:
    def judge(results: Results) -> Finding:
        found = {net: ratios(results, net, recorded) for net in NETS}
        text = "AM-Adam/Adam on one H200: " + ", ".join(f"{net} {value:.2f}" for net, value in found.items())
        slow = [net for net, value in found.items() if value > STATED[net]]
        if not slow:
            return Finding(text, "exceeded", "the recorded steps of AM-Adam are faster than those of Adam")
        why = "AM starts more and smaller operations than backprop, and the processor cannot start them fast enough"
        return Finding(text, "differs", why)

    return judge


@statement(
    "run times grow linearly with mini-batches",
    "over all runs the median of the largest distance from a straight line is below 0.05 of the whole time",
)
def linear(results: Results) -> Finding:
    bent = [unevenness(row) for run in TIMES.values() for row in results.all(run)]
    text = f"off a straight line by {median(bent):.3f} of the whole (median), {max(bent):.3f} (most)"
    return Finding(text, "reproduced") if median(bent) < 0.05 else Finding(text, "differs", "it bends by more")


@statement(
    "one set of auxiliary variables, no multipliers: memory like SGD's",
    "a step of AM-SGD takes at most 1.5 times the peak memory of one of SGD, on each net",
)
def memory_like_sgd(results: Results) -> Finding:
    def peak(net: str, method: str) -> float:
        # The first run of a process also has the libraries' workspaces.
        return min(row["peak_memory"] for row in results.all(TIMES[net, method, False]))

    found = {net: peak(net, "am-sgd") / peak(net, "sgd") for net in NETS}
    text = "peak memory AM-SGD/SGD: " + ", ".join(f"{net} {value:.2f}" for net, value in found.items())
    if max(found.values()) <= 1.5:
        return Finding(text, "reproduced")
    why = "a step stores the codes and a residual beside what SGD stores, and these nets have few weights"
    return Finding(text, "differs", why)


FASTER = "AM-Adam's time over Adam's is at most the paper's ratio, 1.10 for fully connected nets and 1.01 for LeNet-5"
TIME = [
    Statement("with steps recorded as CUDA graphs, AM-Adam takes about as long as Adam", FASTER, as_fast(True)),
    Statement("with ordinary steps, AM-Adam takes about as long as Adam", FASTER, as_fast(False)),
    linear,
]
FIGURE = Figure(
    name="runtimes",
    title="Seconds of training after the first epoch",
    runs=list(TIMES.values()),
    axes=("batches", "epochs"),
    minutes=4,
    measure="seconds",
    claims=[
        Claim("C15", "run time like Adam's, linear in batches", "9.6/8.7 s (30 epochs), 443/440 s (LeNet-5)", TIME),
        Claim(
            "C17", "memory like SGD's: one set of auxiliary variables, no multipliers", "no numbers", [memory_like_sgd]
        ),
    ],
    quick=lambda run: None if run.recorded else run.reduced(),
)
