"""The time and memory of steps beside backprop with Adam: each case is a command `python -m reproduction speed`."""

import json
import math
import tempfile
from pathlib import Path

from reproduction.case import Case
from reproduction.figure import Figure
from reproduction.measurements import results
from reproduction.results import Row, Setting
from reproduction.tables import markdown, table

ALL = "--methods am-adam,adam --threads 2"
TWO = "--modes eager --threads 2"
RECORDED = "--modes eager,graph --threads 1"
MEMORIES = "--methods am-mem,am-adam,coactivation"
INFERRING = "predictive-coding:inference_steps=64,pc-alm:inference_steps=64"
COMMANDS = {
    "cuda": {
        "fastest": f"--model mlp-2x100,mlp-2x500,lenet5,elman-15@mnist-rows:200,mlp-20x512,mlp-50x1024:128 {ALL}"
        " --seconds 20",
        "fastest-tf32": f"--model resnet18-64@cifar10:128,gpt-6x128@shakespeare:64 {ALL} --precision tf32 --seconds 12",
        "memory": f"--model mlp-2x100,mlp-2x500,lenet5 {MEMORIES} --modes graph --seconds 12",
        "memory-resnet": f"--model resnet18-64@cifar10:256 {MEMORIES} --modes graph --precision tf32 --seconds 12",
        "memory-gpt": f"--model gpt-6x128@shakespeare:64 {MEMORIES} --modes graph --precision tf32 --seconds 8",
        "recurrent": "--model elman-15@mnist-rows:200,elman-15@mnist-rows:1024,gru-1x64@mnist-rows:200,"
        "lstm-1x64@mnist-rows:200,elman-15@mnist-sequential:1024,gru-1x64@mnist-sequential:200,"
        f"mingru-1x64@mnist-sequential:200 --methods am-adam,adam {RECORDED} --seconds 70",
    },
    "cpu": {
        "fastest": "--model mlp-2x100,mlp-2x500,mlp-1x300@higgs,lenet5,resnet18-32@cifar10:64"
        " --methods am-adam,adam,adam:fused=true --threads 2 --seconds 150",
        "ordinary": f"--model mlp-2x100,mlp-2x500,lenet5 {MEMORIES},am-mem-fitted {TWO} --seconds 60",
        "ordinary-higgs": f"--model mlp-1x300@higgs {MEMORIES},am-mem-fitted {TWO} --seconds 20",
        "recurrent": "--model elman-15@mnist-rows:200,elman-50@mnist-rows:200,gru-1x64@mnist-rows:200,"
        "lstm-1x64@mnist-rows:200,elman-15@mnist-sequential:200,mingru-1x64@mnist-rows:200"
        " --methods am-adam,adam --modes eager --threads 1 --seconds 70",
        "passes-mlp-2x100": f"--model mlp-2x100 --methods admm,proxprop,am-adam,am-mem-fitted --samples 50000 {TWO}",
        "passes-mlp-2x500": f"--model mlp-2x500 --methods bcd,am-adam,am-mem-fitted --samples 50000 {TWO}",
        "passes-tanh-2x500": f"--model tanh-2x500 --methods dtp,straight-through,am-adam --samples 50000 {TWO}",
        "passes-residual": f"--model residual-32x32:64 --methods {INFERRING},am-adam --samples 1600 {TWO}",
    },
}
"""By the kind of device and a name. "fastest" takes all modes that the machine allows; "passes" are whole ones over the
data, since full-batch methods do part of their work at their end."""
DIFFERENCES = (("am-adam", "adam"), ("am-mem", "am-adam"), ("coactivation", "adam"))
"""Methods whose steps differ by the codes, or by the memory."""
MACHINES = {"cpu": "2 cores", "cuda": "H200"}


def run(case: Case, seed: int, setting: Setting) -> Row:
    from reproduction.__main__ import run as command

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "speed.json"
        more = ["--device", case["device"], "--json", str(path)]
        if command(["speed", *case["arguments"].split(), *case.settings.get("more", "").split(), *more]):
            raise ValueError(f"`python -m reproduction speed {case['arguments']}` has failed")
        found = json.loads(path.read_text())
    return {"bench": found["config"], "results": found["results"], "skipped": found["skipped"]}


def _small(name: str) -> str:
    return "--seconds 2" + " --samples 1000" * name.startswith("passes")


CASES = [
    Case(run, {"name": name, "device": device, "arguments": text}, seeds=1, small={"more": _small(name)})
    for device, each in COMMANDS.items()
    for name, text in each.items()
]
FIGURES = [Figure("speed", "Time and memory of a step beside backprop", CASES, axes=(), minutes=20)]


def rows(device: str, *names: str) -> list[Row]:
    """The rows of these commands, each with the device and the precision."""
    found = []
    for case in CASES:
        if case["device"] == device and case["name"] in names:
            for made in results("speed").of(case):
                found += [{**row, "device": device, "precision": made["bench"]["precision"]} for row in made["results"]]
    return found


def passes() -> dict[tuple[str, str], Row]:
    """By net and method, the time of a pass over the data beside Adam's: median and quartiles."""
    names = [case["name"] for case in CASES if case["name"].startswith("passes")]
    return {(row["model"], row["method"].partition(":")[0]): row["time_ratio"] for row in rows("cpu", *names)}


def quartiles(spread: Row) -> str:
    """The median, with the quartiles.

    >>> quartiles({"median": 1.5, "q1": 1.25, "q3": 2.0})
    '1.50 (1.25 to 2.00)'
    """
    return f"{spread['median']:.2f} ({spread['q1']:.2f} to {spread['q3']:.2f})"


def by_net(found: list[Row]) -> dict[str, dict[tuple[str, str], Row]]:
    """By net, and then by method and mode."""
    nets: dict[str, dict[tuple[str, str], Row]] = {}
    for row in found:
        nets.setdefault(row["net"], {})[row["method"], row["mode"]] = row
    return nets


def fastest(found: dict[tuple[str, str], Row]) -> tuple[Row, Row]:
    """The fastest backprop of a net, and the fastest AM-Adam."""
    ours = [row for (method, _), row in found.items() if method == "am-adam"]
    theirs = [row for (method, _), row in found.items() if method != "am-adam"]
    best, mine = (min(each, key=lambda row: row["step_seconds"]["median"]) for each in (theirs, ours))
    return best, mine


@table("speed.fastest")
def against_fastest() -> str:
    """AM-Adam in its fastest mode beside the fastest backprop of the same run: time, and memory at the peak."""
    lines = []
    for device, machine in MACHINES.items():
        for net, found in by_net(rows(device, "fastest", "fastest-tf32")).items():
            best, mine = fastest(found)
            ms = [f"{1000 * row['step_seconds']['median']:.3f}" for row in (best, mine)]
            line = [net, f"{machine}, {mine['precision']}", best["best_backprop"], ms[0], mine["mode"], ms[1]]
            sizes = [row["peak_bytes"] / 1e6 for row in (best, mine)]
            lines.append([*line, quartiles(mine["ratio_to_best"]), *(f"{size:.1f}" for size in sizes)])
            lines[-1].append(f"{sizes[1] / sizes[0]:.2f}")
    head = ["net", "on", "fastest backprop", "its ms", "AM-Adam", "its ms", "time ratio (quartiles)"]
    return markdown([*head, "backprop's MB", "AM-Adam's MB", "memory ratio"], lines)


@table("speed.ordinary")
def ordinary() -> str:
    """Time and peak memory beside Adam in the same mode: ordinary steps on two cores, recorded ones on a GPU."""
    found = [*rows("cpu", "ordinary", "ordinary-higgs"), *rows("cuda", "memory-resnet", "memory-gpt", "memory")]
    lines = []
    for row in found:
        if row["method"] != "adam":
            on = MACHINES[row["device"]] + (", recorded" if row["mode"] == "graph" else "")
            line = [row["net"], on, row["method"], quartiles(row["time_ratio"]), f"{row['memory_ratio']:.2f}"]
            lines.append(line)
    return markdown(["net", "on", "method", "step time / Adam (quartiles)", "peak memory / Adam"], lines)


@table("speed.parts")
def parts() -> str:
    """What of a step is backprop with Adam, what the codes add to it, and what the memory."""
    cases = [("cpu", ["ordinary", "ordinary-higgs"]), ("cuda", ["memory-resnet", "memory-gpt", "memory"])]
    lines = []
    for device, names in cases:
        for net, steps in by_net(rows(device, *names)).items():
            ms = {method: 1000 * row["step_seconds"]["median"] for (method, _), row in steps.items()}
            adam = ms["adam"]
            shares = [(ms.get(of, math.nan) - ms[over]) / adam for of, over in DIFFERENCES]
            cells = ["" if math.isnan(share) else f"{share:+.2f}" for share in shares]
            lines.append([net, MACHINES[device], f"{adam:.3f}", *cells])
    head = ["net", "on", "backprop with Adam, ms", "codes", "the memory in AM-mem", "the memory in CoActivation"]
    return markdown(head, lines)


@table("speed.recurrent")
def recurrent() -> str:
    """Steps of recurrent nets, by torch's own kernels and by AM's."""
    lines = []
    for device, machine in (("cuda", "H200"), ("cpu", "one core")):
        for row in rows(device, "recurrent"):
            if row["method"] == "am-adam":
                mode = "recorded" if row["mode"] == "graph" else "ordinary"
                what = [machine, f"{row['model']}, {row['data']}", str(row["batch_size"]), mode]
                lines.append([*what, f"{1000 * row['step_seconds']['median']:.2f}", quartiles(row["time_ratio"])])
    return markdown(["on", "net, data", "batch", "steps", "ms", "time / BPTT with Adam (quartiles)"], lines)


@table("speed.short")
def short() -> str:
    """Of every net what AM-Adam's steps take beside Adam's."""
    nets: dict[str, dict[str, str]] = {}
    for device in MACHINES:
        for net, found in by_net(rows(device, "fastest", "fastest-tf32")).items():
            cells = nets.setdefault(net.partition("@")[0].partition(":")[0], {})
            eager = found["am-adam", "eager"]
            cells[f"{device} eager"] = f"{eager['time_ratio']['median']:.2f}"
            cells[f"{device} fastest"] = f"{fastest(found)[1]['ratio_to_best']['median']:.2f}"
            cells[f"{device} memory"] = f"{eager['memory_ratio']:.2f}"
    kinds = {"eager": "ordinary steps", "fastest": "both at their fastest", "memory": "memory of ordinary steps"}
    names = {f"{device} {kind}": f"{on}, {words}" for device, on in MACHINES.items() for kind, words in kinds.items()}
    lines = [[net, *(cells.get(name, "") for name in names)] for net, cells in nets.items()]
    return markdown(["net", *names.values()], lines)
