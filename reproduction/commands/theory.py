"""`python -m reproduction theory`: the paper's convergence theorem against measurement."""

import itertools
from dataclasses import dataclass

import torch
import typer

from altmin.cli import options, output, parse
from altmin.cli.options import option
from reproduction.theory import study
from reproduction.theory.quadratic import family
from reproduction.theory.table import remarks, table


@dataclass(frozen=True, kw_only=True)
class Theory:
    blocks: str = option("2,4,8", "Numbers of blocks, from 2 to 8.", metavar="K,K,...")
    coupling: str = option("0,0.5,0.9", "As parts of the theorem's limit.", metavar="X,X,...")
    condition: str = option("1,10", "Largest curvature over the least.", metavar="X,X,...")
    noise: float = option(2.0, "Root mean square of a block's gradient noise.", min=0)
    steps: int = option(100_000, "Rounds over all blocks.", min=10)
    runs: int = option(2_000, "Runs of a problem; 1 in 2K of them past round 1,000.", min=8)
    quick: bool = option(False, "At most 10,000 rounds and 1,000 runs.", "--quick")
    seed: int = option(0, "For the gradient noise.", min=0)
    plot: options.Plot = None
    json_file: options.Json = None


@options.command(Theory)
def theory(ctx: typer.Context, given: Theory) -> None:
    """Measure the paper's convergence theorem: error against bound, inside its assumptions and beyond."""
    output.check_writable(given.json_file, picture=given.plot)
    steps, runs = (min(given.steps, 10_000), min(given.runs, 1_000)) if given.quick else (given.steps, given.runs)
    noise, seed = given.noise, given.seed
    for name in ("blocks", "coupling", "condition"):
        parse.names(f"--{name}", getattr(given, name))
    K = parse.numbers("--blocks", given.blocks, int)
    shares = parse.numbers("--coupling", given.coupling, float)
    kappas = parse.numbers("--condition", given.condition, float)
    for problem in itertools.product(K, shares, kappas, [noise]):
        family(*problem)  # a number out of range is better refused before the first minute
    rounds = study.rounds_in_all(K, steps)
    with output.progress("theory") as tick:
        found = study.study(K, shares, kappas, noise, steps, runs, seed, lambda done, text: tick(done, rounds, text))
    config = {"blocks": K, "coupling": shares, "condition": kappas, "noise": noise, "steps": steps, "runs": runs}
    result = {"seed": seed, "config": config, "environment": output.environment(torch.device("cpu")), **found}
    screen = output.console()
    screen.print(table(result))
    for line in remarks(result):
        screen.print(line)
    output.write_json(given.json_file, result)
    if given.plot is not None:
        from reproduction.theory import picture  # matplotlib takes a second to import

        output.write(given.plot, picture.draw(result, given.plot.suffix[1:]))
    if broken := [row for row in result["rows"] if not row["outside"] and row["broken"]]:
        print(
            f"the bound is broken inside the theorem, first by K = {broken[0]['K']}, coupling {broken[0]['coupling']:g}"
        )
        raise typer.Exit(1)
