"""A result of `altmin compare` to show: two methods, two seeds, two epochs."""

from typing import Any


def result(**config: Any) -> dict[str, Any]:
    def run(method: str, seed: int, early: float, ends: list[float], seconds: float) -> dict[str, Any]:
        rows = [
            {"epoch": i, "train_loss": 1 / i, "test_accuracy": value, "seconds": seconds}
            for i, value in enumerate(ends, 1)
        ]
        return {"method": method, "seed": seed, "batches": [{"batch": 50, "test_accuracy": early}], "epochs": rows}

    return {
        "data": "mnist",
        "model": "mlp-2x100",
        "methods": ["am-adam", "adam"],
        "seeds": [0, 1],
        "config": {
            "epochs": 2,
            "batch_size": 200,
            "evaluated_on": "test",
            "batches_per_epoch": 250,
            "eval_batches": [50],
            **config,
        },
        "runs": [
            run("am-adam", 0, 0.90, [0.96, 0.95], 3.0),
            run("adam", 0, 0.88, [0.94, 0.96], 2.0),
            run("am-adam", 1, 0.92, [0.97, 0.95], 6.0),
            run("adam", 1, 0.88, [0.94, 0.98], 3.0),
        ],
    }
