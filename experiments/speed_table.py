"""The tables of docs/speed-measured.md from the files of `experiments/speed.py`, figures beside their targets."""

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from common import HERE, Row, fill, ratio, table

CPU_NETS = ["mlp-2x100", "mlp-2x500", "mlp-1x300@higgs", "lenet5"]
NETS = [*CPU_NETS[:3], "mlp-20x512", "mlp-50x1024:128", "mlp-10x2048:1024", "lenet5"]
RECURRENT = "elman-15@mnist-sequential:1024"
GROWTHS = {
    "depth": "as layers are added",
    "width": "as layers widen",
    "batch": "as batches fill",
    "members": "as members join",
}

# Targets for the time of am-adam over that of the fastest backprop.
BEST = {
    "cuda": {
        **{"mlp-2x100": 0.8, "mlp-2x500": 1.1, "lenet5": 1.1, "elman-15@mnist-rows:200": 0.4},
        **{"mlp-20x512": 1.0, "mlp-50x1024:128": 0.8},
    },
    "cuda-tf32": {"resnet18-64@cifar10:128": 1.4, "gpt-6x128@shakespeare:64": 1.4},
    "cpu": {
        **{"mlp-2x100": 1.1, "mlp-2x500": 1.05, "mlp-1x300@higgs": 1.05, "lenet5": 1.1},
        "resnet18-32@cifar10:64": 1.6,
    },
}

SIDES = {"am-adam": True, "backprop": False}
BEST_FILES = {"cuda": ("cuda", "best"), "cuda-tf32": ("cuda", "best-tf32"), "cpu": ("cpu", "best")}

# Targets for the time of am-adam over that of adam.
GRAPH = {
    "mlp-2x100": 0.72,
    "mlp-2x500": 0.98,
    "mlp-1x300@higgs": 0.94,
    "mlp-20x512": 0.78,
    "mlp-50x1024:128": 0.73,
    "mlp-10x2048:1024": 1.33,
    "lenet5": 1.0,
    RECURRENT: 0.40,
}
FUSED_CPU = dict.fromkeys(CPU_NETS[:3], 1.1)
LONG = {
    "higgs-epoch": ("an epoch of HIGGS size, mlp-1x300, seconds", "seconds", 3.5),
    "five-seeds": ("five seeds of mlp-2x100, 50 epochs of MNIST, seconds", "seconds", 15.0),
    "many-settings": ("64 settings over one, time of an epoch", "ratio", 2.5),
}


def file_of(device: str, part: str) -> Path:
    return HERE / f"benchmarks/speed-{device}-{part}.json"


def fill_tables(document: Path) -> int:
    """Every part whose file is there; of the others, how to make it."""
    parts: list[tuple[str, str, Callable[[Row], str]]] = [
        *((*file, partial(against_best, targets=BEST[name])) for name, file in BEST_FILES.items()),
        (
            "cuda",
            "nets",
            lambda found: on_gpu(found) + _picture("cuda-nets", "time of a step over that of Adam, by net"),
        ),
        ("cuda", "large", on_gpu),
        ("cuda", "recurrent", on_gpu),
        *(("cuda", part, partial(grown, device="cuda", part=part)) for part in GROWTHS),
        ("cuda", "long", long_runs),
        ("cpu", "nets", on_cpu),
        ("cpu", "large", on_cpu),
        *(("cpu", part, partial(grown, device="cpu", part=part)) for part in GROWTHS if part != "members"),
    ]
    whole = document.read_text() if document.exists() else ""
    if not (0 <= whole.find("<!-- results:begin -->") < whole.find("<!-- results:end -->")):
        print(
            f"speed.py: {document} has no place for the results; put the lines <!-- results:begin --> and "
            "<!-- results:end --> where they should be",
            file=sys.stderr,
        )
        return 2
    fill(document, "\n" + "\n".join(_part(*each) for each in parts) + "\n")
    print(f"wrote {document}")
    return 0


def against_best(found: Row, targets: dict[str, float]) -> str:
    """am-adam in its fastest mode over the fastest backprop, in time; and in memory beside backprop as it is, with
    activations computed again, and in its fastest mode."""
    times, memory = [], []
    for net, target in targets.items():
        rows = {(row["method"], row["mode"]): row for row in found["results"] if row["net"] == net}
        if not rows:
            continue
        of = {name: [row for key, row in rows.items() if (key[0] == "am-adam") is ours] for name, ours in SIDES.items()}
        fastest, best = (min(each, key=lambda row: row["step_seconds"]["median"]) for each in of.values())
        value = fastest["ratio_to_best"]["median"]
        ms = [f"{1000 * row['step_seconds']['median']:.3f}" for row in (best, fastest)]
        times.append([net, best["best_backprop"], ms[0], fastest["mode"], ms[1], ratio(fastest["ratio_to_best"])])
        times[-1] += [f"{target:g}", verdict(value, target)]
        shown = [rows.get(key) for key in (("am-adam", "eager"), ("adam", "eager"), ("adam", "checkpoint"))]
        sizes = ["" if row is None else f"{row['peak_bytes'] / 1e6:.1f}" for row in (*shown, fastest, best)]
        memory.append([net, *sizes, f"{fastest['peak_bytes'] / best['peak_bytes']:.2f}"])
    names = ["net", "fastest backprop", "its ms", "am-adam", "its ms", "ratio (quartiles)", "target", ""]
    text = f"Against the fastest backprop of the same run, products in {found['config']['precision']}.\n\n"
    sizes = ["am-adam", "adam", "adam, activations computed again", "fastest am-adam", "fastest backprop", "ratio"]
    return f"{text}{table(names, times)}\nMegabytes at the peak of a step.\n\n{table(['net', *sizes], memory)}"


def _part(device: str, part: str, text: Callable[[Row], str]) -> str:
    path = file_of(device, part)
    if not path.exists():
        missing = f"Not measured yet: `python experiments/speed.py {device} {part}` writes `{path.relative_to(HERE)}`."
        print(f"speed.py: {missing}", file=sys.stderr)
        return missing + "\n"
    found = json.loads(path.read_text())
    return f"{where(found)}; from [{path.name}](../benchmarks/{path.name}).\n\n{text(found)}"


def where(found: Row) -> str:
    about = found["environment"]
    return about["gpu"] or f"{about['cpu']}, {about['threads']} threads"


def verdict(value: float, target: float | None) -> str:
    """Whether a figure meets its target, before it is rounded to be shown."""
    if target is None:
        return ""
    return "met" if value <= target else "missed"


def against(spread: Row | None, target: float | None) -> list[str]:
    """Three cells: the ratio with its quartiles, the target, the verdict."""
    if spread is None:
        return ["", "", ""]
    return [ratio(spread), "" if target is None else f"{target:.2f}", verdict(spread["median"], target)]


def on_gpu(found: Row) -> str:
    rows = [row for row in found["results"] if row["method"] == "am-adam"]
    lines = [
        [
            *(row["net"], str(row["batch_size"]), row["mode"]),
            *against(row["time_ratio"], GRAPH.get(row["net"]) if row["mode"] == "graph" else None),
            against(row["ratio_to_compiled"] if row["mode"] == "eager" else None, None)[0],
            f"{row['samples_per_second']:,.0f}",
            f"{row['memory_ratio']:.2f}",
        ]
        for row in rows
    ]
    head = ["net", "batch", "mode", "am-adam / adam, same mode", "target", "", "/ compiled adam", "samples / s"]
    return table([*head, "peak memory / adam"], lines)


def on_cpu(found: Row) -> str:
    rows = [row for row in found["results"] if row["method"] == "am-adam"]
    lines = [
        [
            *(row["net"], str(row["batch_size"])),
            *against(row["ratio_to_variants"]["adam:fused=true"], FUSED_CPU.get(row["net"])),
        ]
        for row in rows
    ]
    return table(["net", "batch", "am-adam / fused adam", "target", ""], lines)


def ensembles(found: Row) -> str:
    lines = [
        [
            *(row["net"], row["mode"], row["method"], str(row["members"])),
            f"{1e6 * row['member_step_seconds']['median']:.1f}",
            ratio(row["ratio_to_one_member"]),
            ratio(row["time_ratio"]),
        ]
        for row in found["results"]
    ]
    head = ["net", "mode", "method", "members", "µs for a member's step", "time / one member", "time / adam's ensemble"]
    return table(head, lines)


def grown(found: Row, device: str, part: str) -> str:
    rows = [row for row in found["results"] if row["method"] == "am-adam"]
    sizes = sorted({row["size"] for row in rows})
    lines = [
        [mode, *(f"{row['time_ratio']['median']:.2f}" for row in sorted(rows, key=_size) if row["mode"] == mode)]
        for mode in found["config"]["modes"]
    ]
    head = [f"am-adam / adam, {part}", *(f"{size:,}" for size in sizes)]
    more = "\n" + ensembles(found) if part == "members" else ""
    return (
        table(head, lines)
        + more
        + _picture(f"{device}-{part}", f"time over Adam's, and samples a second, {GROWTHS[part]}")
    )


def long_runs(found: Row) -> str:
    lines = []
    for row in found["results"]:
        what, key, target = LONG[row["name"]]
        lines.append([what, f"{row[key]:.2f}", f"{target:g}", verdict(row[key], target)])
    return table(["run", "measured", "target", ""], lines)


def _picture(name: str, text: str) -> str:
    """A link, where there is something to see."""
    path = HERE / f"docs/images/speed-{name}.png"
    return f"\n![{text}](images/{path.name})\n" if path.exists() else ""


def _size(row: Row) -> Any:
    return row["size"]
