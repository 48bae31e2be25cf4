"""The table of docs/theory-measured.md from benchmarks/theory.json: `python experiments/theory.py table`.

The file and the picture are written by `theory --json benchmarks/theory.json --plot docs/images/theory.png`.
"""

import json
import sys

from common import HERE, Row, fill, table

RESULT, DOCUMENT = HERE / "benchmarks/theory.json", HERE / "docs/theory-measured.md"
TIMES = (10, 1_000, 10_000, 100_000)


def cells(row: Row) -> list[str]:
    found = []
    for t in TIMES:
        if t not in row["times"]:
            found.append("")
            continue
        i = row["times"].index(t)
        mean, error = row["mean"][i], row["standard_error"][i]
        digits = f"{mean:.2e}" + (f" ± {error:.0e}" if error > 1e-12 * mean else "")  # without noise all runs are one
        found.append(digits + (f" / {row['bound'][i]:.1e}" if row["bound"] else ""))
    tight = "" if row["tightness"] is None else f"{row['tightness']:.3g}"
    return [*found, f"{row['slope']:.2f}", tight]


def main() -> None:
    if sys.argv[1:] != ["table"]:
        sys.exit(__doc__)
    rows = json.loads(RESULT.read_text())["rows"]
    head = ["K", "coupling", "condition", *(f"t = {t:,}" for t in TIMES), "slope", "bound / error"]
    text = ""
    for title, outside in (("inside the theorem", False), ("outside it", True)):
        chosen = [row for row in rows if bool(row["outside"]) == outside]
        body = [
            [row["case"], str(row["K"]), f"{row['coupling']:.3g}", f"{row['condition']:.3g}", *cells(row)]
            for row in chosen
        ]
        text += table([title, *head], body) + ("" if outside else "\n")
    fill(DOCUMENT, text)


if __name__ == "__main__":
    main()
