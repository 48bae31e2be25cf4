"""Where the time of a step goes on two cores: `python experiments/speed_profile.py run`, then `... table`.

`run` profiles steps of am-adam and of fused Adam and writes benchmarks/speed-profile.json; `table` writes the table of
docs/speed.md. What torch's operations do not account for is Python and dispatch: the median time of a step, without the
profiler, less theirs.
"""

import json
import statistics
import sys
import time
from typing import Any

import torch
from common import HERE, Row, fill, table
from torch.profiler import ProfilerActivity, profile

from altmin import data, methods, models
from altmin.cli import output
from altmin.common.memory import keep_freed_memory
from reproduction.speed.measure import synthetic

RESULT, DOCUMENT = HERE / "benchmarks/speed-profile.json", HERE / "docs/speed.md"
NETS = {"mlp-2x100": "mnist", "mlp-2x500": "mnist", "mlp-1x300": "higgs", "lenet5": "mnist"}
METHODS: dict[str, Row] = {"am-adam": {}, "adam": {"fused": True}}
KINDS = {
    "products": ("mm", "addmm", "bmm", "mkldnn_convolution", "convolution_backward", "_slow_conv2d_forward"),
    "sums and norms": ("sum", "dot", "linalg_vector_norm", "_foreach_norm", "mean", "max", "native_batch_norm"),
    "Adam": ("_fused_adam_", "_foreach_add_"),
}
OTHER, REST = "elementwise, pooling, views", "Python and dispatch"
ROUNDS, STEPS = 15, 20


def kind_of(name: str) -> str:
    return next((kind for kind, names in KINDS.items() if name.removeprefix("aten::") in names), OTHER)


def one_round(method: Any, batches: Any) -> Row:
    """Microseconds of a step, and of its operations by kind."""
    times = []
    for i in range(STEPS):
        start = time.perf_counter()
        method.step(*batches[i % len(batches)])
        times.append(1e6 * (time.perf_counter() - start))
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        for i in range(STEPS):
            method.step(*batches[i % len(batches)])
    operations = [each for each in seen.key_averages() if each.key.startswith("aten::")]
    parts = dict.fromkeys([*KINDS, OTHER], 0.0)
    for each in operations:
        parts[kind_of(each.key)] += each.self_cpu_time_total / STEPS
    return {"step": statistics.median(times), "operations": sum(each.count for each in operations) / STEPS, **parts}


def measure(net: str) -> list[Row]:
    """Medians over rounds in which the methods take turns."""
    known = data.dataset(NETS[net])
    batches = synthetic(known.sample_shape, known.classes, 200, torch.device("cpu"))
    made: dict[str, Any] = {}
    for name, options in METHODS.items():
        torch.manual_seed(0)
        made[name] = methods.create(name, models.create(net, known.sample_shape, known.classes), **options)
    rounds = [{name: one_round(method, batches) for name, method in made.items()} for _ in range(ROUNDS)]
    rows = []
    for name in made:
        found = {key: statistics.median(each[name][key] for each in rounds[1:]) for key in rounds[0][name]}
        found[REST] = max(0.0, found["step"] - sum(found[kind] for kind in (*KINDS, OTHER)))
        rows.append({"net": net, "method": name, **found})
    return rows


def run() -> None:
    torch.set_num_threads(2)
    keep_freed_memory()
    rows = [row for net in NETS for row in measure(net)]
    result = {"environment": output.environment(torch.device("cpu")), "rows": rows}
    RESULT.write_text(json.dumps(result, indent=1) + "\n")


def text() -> str:
    rows = json.loads(RESULT.read_text())["rows"]
    kinds = [*KINDS, OTHER, REST]
    lines = [
        [row["net"], "fused Adam" if row["method"] == "adam" else row["method"], f"{row['step']:,.0f}"]
        + [f"{row[kind]:,.0f}" for kind in kinds]
        + [f"{row['operations']:.0f}"]
        for row in rows
    ]
    return table(["net", "method", "step", *kinds, "calls of operations"], lines)


if __name__ == "__main__":
    run() if sys.argv[1] == "run" else fill(DOCUMENT, text(), "profile")
