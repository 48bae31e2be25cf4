"""`python -m reproduction theory`: the paper's convergence theorem against measurement."""

import itertools
from dataclasses import dataclass
from typing import Annotated

import torch
import typer

from altmin.cli import options, output
from reproduction.theory import study
from reproduction.theory.quadratic import family
from reproduction.theory.table import remarks, table


@dataclass(frozen=True, kw_only=True)
class Theory:
    blocks: Annotated[str, typer.Option(metavar="K,K,...", help="Numbers of blocks, from 2 to 8.")] = "2,4,8"
    coupling: Annotated[str, typer.Option(metavar="X,X,...", help="As parts of the theorem's limit.")] = "0,0.5,0.9"
    condition: Annotated[str, typer.Option(metavar="X,X,...", help="Largest curvature over the least.")] = "1,10"
    noise: Annotated[float, typer.Option(min=0, help="Root mean square of a block's gradient noise.")] = 2.0
    steps: Annotated[int, typer.Option(min=10, help="Rounds over all blocks.")] = 100_000
    runs: Annotated[int, typer.Option(min=8, help="Runs of a problem; 1 in 2K of them past round 1,000.")] = 2_000
    quick: Annotated[bool, typer.Option("--quick", help="At most 10,000 rounds and 1,000 runs.")] = False
    seed: Annotated[int, typer.Option(min=0, help="For the gradient noise.")] = 0
    plot: options.Plot = None
    json_file: options.Json = None


@options.command(Theory)
def theory(given: Theory) -> None:
    """Measure the paper's convergence theorem: error against bound, inside its assumptions and beyond."""
    output.check_writable(given.json_file, picture=given.plot)
    steps, runs = (min(given.steps, 10_000), min(given.runs, 1_000)) if given.quick else (given.steps, given.runs)
    noise, seed = given.noise, given.seed
    K = [int(word) for word in options.words(given.blocks)]
    shares, kappas = ([float(word) for word in options.words(text)] for text in (given.coupling, given.condition))
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
