"""`python -m reproduction theory`: the paper's convergence theorem against measurement."""

from typing import Annotated

import torch
import typer

from altmin.cli import output
from altmin.cli.options import Json, Seed
from reproduction.tables import markdown
from reproduction.theory import study


def theory(
    quick: Annotated[
        bool, typer.Option("--quick", help="10,000 rounds and 1,000 runs, not 100,000 and 2,000.")
    ] = False,
    seed: Seed = 0,
    json_file: Json = None,
) -> None:
    """Measure the paper's convergence theorem: error against bound, inside its assumptions and beyond."""
    output.check_writable(json_file)
    steps, runs = (10_000, 1_000) if quick else (100_000, 2_000)
    with output.progress("theory") as tick:
        found = study.study(steps, runs, seed, lambda done, text: tick(done, study.rounds_in_all(steps), text))
    print(markdown(*study.table("problem", found["rows"])), *study.remarks(found), sep="\n")
    config = {"steps": steps, "runs": runs}
    result = {"seed": seed, "config": config, "environment": output.environment(torch.device("cpu")), **found}
    output.write_json(json_file, result)
    if broken := [row for row in found["rows"] if not row["outside"] and row["broken"]]:
        print(f"the bound is broken inside the theorem, first with {broken[0]['K']} blocks")
        raise typer.Exit(1)
