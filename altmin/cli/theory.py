"""`altmin theory`: the paper's convergence theorem against measurement."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from altmin.cli import options


def theory(
    blocks: Annotated[str, typer.Option(metavar="K,K,...", help="Numbers of blocks, from 2 to 8.")] = "2,4,8",
    coupling: Annotated[
        str, typer.Option(metavar="X,X,...", help="Coupling of the blocks, as a part of what the theorem allows.")
    ] = "0,0.5,0.9",
    condition: Annotated[
        str, typer.Option(metavar="X,X,...", help="Largest curvature of a block over its least.")
    ] = "1,10",
    noise: Annotated[
        float, typer.Option(min=0, help="Root mean square of a sample's gradient noise in a block.")
    ] = 2.0,
    steps: Annotated[int, typer.Option(min=10, help="Rounds over all blocks.")] = 100_000,
    runs: Annotated[
        int, typer.Option(min=8, help="Independent runs of each problem; 1 in 2K of them beyond round 1,000.")
    ] = 2_000,
    quick: Annotated[
        bool, typer.Option("--quick", help="At most 10,000 rounds and 1,000 runs: seconds, not a minute.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="For the gradient noise.")] = 0,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the errors: .png, .svg or .pdf.")] = None,
    json_file: options.Json = None,
) -> None:
    """Measure the paper's convergence theorem: error against bound, inside its assumptions and beyond."""
    from altmin.cli import output, parse

    output.check_writable(plot, json_file)
    if plot is not None:
        from altmin import plot as picture
        from altmin.theory import picture as drawing

        picture.check_format(plot)
    import torch

    from altmin.theory import study
    from altmin.theory.quadratic import family

    if quick:
        steps, runs = min(steps, 10_000), min(runs, 1_000)
    K = parse.numbers("--blocks", blocks)
    shares, kappas = _reals("--coupling", coupling), _reals("--condition", condition)
    for each in ("--blocks", K), ("--coupling", shares), ("--condition", kappas):
        if not each[1]:
            raise ValueError(f"{each[0]} names nothing; give one number, or several separated by commas")
    for k in K:  # a number out of range is better refused before the first minute
        for share in shares:
            for kappa in kappas:
                family(k, share, kappa, noise)
    with output.progress("theory", study.rounds_in_all(K, steps)) as tick:
        found = study.study(K, shares, kappas, noise, steps, runs, seed, tick)
    config = {"blocks": K, "coupling": shares, "condition": kappas, "noise": noise, "steps": steps, "runs": runs}
    result = {"seed": seed, "config": config, "environment": output.environment(torch.device("cpu")), **found}
    screen = output.console()
    screen.print(table(result))
    for line in remarks(result):
        screen.print(line)
    output.write_json(json_file, result)
    if plot is not None:
        output.write(plot, drawing.draw(result, plot.suffix[1:]))
    if broken := [row for row in result["rows"] if not row["outside"] and row["broken"]]:
        print(
            f"the bound is broken inside the theorem, first by K = {broken[0]['K']}, coupling {broken[0]['coupling']:g}"
        )
        raise typer.Exit(1)


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


def _reals(option: str, text: str) -> list[float]:
    from altmin.cli import parse

    try:
        return [float(word) for word in parse.words(text)]
    except ValueError:
        raise ValueError(f"{option} takes numbers, such as 0.5,0.9, not {text!r}") from None
