"""Results of `python -m reproduction speed` to show: bars for two nets in two modes, lines for one net that grows."""

from typing import Any


def spread(median: float) -> dict[str, float]:
    return {"median": median, "q1": 0.9 * median, "q3": 1.2 * median}


def row(net: str, method: str, ratio: float, mode: str = "eager", members: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "net": net,
        "model": net.partition(":")[0],
        "data": "mnist",
        "batch_size": int(net.partition(":")[2] or 200),
        "method": method,
        "mode": mode,
        "members": members,
        "step_seconds": spread(1e-3 * ratio),
        "member_step_seconds": spread(1e-3 * ratio / members),
        "samples_per_second": 200 * members / (1e-3 * ratio),
        "time_ratio": spread(ratio),
        "ratio_to_compiled": None,
        "ratio_to_one_member": spread(1.0),
        "ratio_to_variants": {},
        "best_backprop": "adam, graph",
        "ratio_to_best": spread(2 * ratio),
        "kept_bytes": 2_000_000,
        "peak_bytes": 3_000_000,
        "memory_ratio": ratio / 2,
        **more,
    }


def result(rows: list[dict[str, Any]], grow: str | None = None) -> dict[str, Any]:
    def all_of(key: str) -> list[Any]:
        return list(dict.fromkeys(each[key] for each in rows))

    return {
        "models": all_of("net"),
        "methods": all_of("method"),
        "config": {"yardstick": "adam", "modes": all_of("mode"), "precision": "float32", "grow": grow},
        "environment": {"gpu": None, "cpu": "a processor", "threads": 2, "torch": "2.0"},
        "results": rows,
    }


BARS = result(
    [
        row("mlp-2x100", "adam", 1.0),
        row("mlp-2x100", "am-adam", 1.5),
        row("mlp-2x100", "adam", 1.0, "graph"),
        row("mlp-2x100", "am-adam", 0.8, "graph"),
        row("lenet5:50", "adam", 1.0),
        row("lenet5:50", "am-adam", 1.1),
        row("lenet5:50", "adam", 1.0, "graph"),
        row("lenet5:50", "am-adam", 0.7, "graph"),
    ]
)


LINES = result(
    [
        row("mlp-2x100", method, ratio, size=size)
        for method, ratio in (("adam", 1.0), ("am-adam", 2.0))
        for size in (8, 2)
    ],
    grow="depth",
)
