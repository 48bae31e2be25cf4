"""The result of `python -m reproduction theory` in words: a table of errors and bounds, and what it does not say."""

from collections.abc import Mapping
from typing import Any

from rich.table import Table


def table(result: Mapping[str, Any]) -> Table:
    """Two lines a row: mean squared error with its standard error, and under it the bound, at powers of ten."""
    last = result["config"]["steps"]
    shown = [10**e for e in range(1, 9) if 10**e <= last]
    drawn = Table("problem", title="E |theta - theta*|^2 and its bound", title_justify="left", header_style="bold")
    for name in ("K", "coupling", "condition", *(f"t = {t:,}" for t in shown), "slope", "bound / error"):
        drawn.add_column(name, justify="right")
    for row in result["rows"]:
        cells = []
        for t in shown:
            if t not in row["times"]:
                cells.append("")
                continue
            i = row["times"].index(t)
            mean, error = row["mean"][i], row["standard_error"][i]
            limit = f"{row['bound'][i]:.2e}" if row["bound"] else "none"
            cells.append(f"{mean:.2e} ± {100 * error / mean:.0f}%\n{limit}")
        name = row["case"] + (
            "\noutside" if row["outside"] else "\nprinted" * (row["constants"]["kind"] != "corrected")
        )
        slope = "" if row["slope"] is None else f"{row['slope']:.2f}"
        tight = "" if row["tightness"] is None else f"{row['tightness']:.3g}"
        style = "dim" if row["outside"] else None if row["below_bound"] else "red"
        numbers = (str(row["K"]), f"{row['coupling']:.3g}", f"{row['condition']:.3g}")
        drawn.add_row(name, *numbers, *cells, slope, tight, style=style)
    return drawn


def remarks(result: Mapping[str, Any]) -> list[str]:
    """What the table does not say: the verdict, the lemma, and which assumption fails where."""
    inside = [row for row in result["rows"] if not row["outside"]]
    held = sum(bool(row["below_bound"]) for row in inside)
    lines = [
        f"Inside the theorem, corrected constants: mean + 3 standard errors below the bound at every t in {held} of "
        f"{len(inside)} problems."
    ]
    if unclear := sum(not row["below_bound"] and not row["broken"] for row in inside):
        lines.append(
            f"Of {unclear} more the mean is below the bound, or within its errors of it: raise --runs to tell."
        )
    for check in result["checks"]:
        verdict = "holds" if check["holds"] else "FAILS"
        lines.append(
            f"{check['name']}, {check['version']}: {check['left']:.4f} <= {check['right']:.4f} {verdict} "
            f"({check['where']})"
        )
    after = result["printed_bound_broken_after"]
    lines.append(
        f"The bound with the printed xi, curvatures 1 and 10, is broken after {after:.1e} rounds (closed form)."
    )
    for report in result["reports"]:
        for each in report["assumptions"]:
            if not each["holds"]:
                far = "" if each["margin"] is None else f", {-100 * each['margin']:.0f}% too far"
                lines.append(f"{report['case']}: {each['name']} fails at {each['where']}{far}.")
    return lines
