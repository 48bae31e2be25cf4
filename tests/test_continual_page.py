"""What docs/continual.md says is what the files say."""

import json
import statistics
from pathlib import Path


def test_what_the_page_says_of_the_output_layers_rate_is_in_the_search() -> None:
    root = Path(__file__).resolve().parent.parent
    rows = [
        json.loads(line) for line in (root / "benchmarks/reproduce/search/continual.jsonl").read_text().splitlines()
    ]
    fixed = {"forget": 1.0, "rate": 30.0, "damping": 30.0, "steps": None}
    means = []
    for lr in (1e-5, 1e-4, 1e-3):
        alike = [row for row in rows if row["learner"] == "am-mem" and row["options"] == {**fixed, "lr": lr}]
        means.append(statistics.mean(row["average_accuracy"] for row in alike if row["sequence"] == "split"))
    low, middle, high = (f"{mean:.3f}" for mean in means)
    page = " ".join((root / "docs/continual.md").read_text().split())
    assert f"accuracy is {low} with `lr=1e-5`, {middle} with 1e-4 and {high} with 1e-3" in page
