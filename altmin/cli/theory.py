"""`altmin theory`: the paper's convergence theorem against measurement."""

import itertools
from typing import Annotated

import torch
import typer

from altmin.cli import options, output, parse
from altmin.paper.theory import study
from altmin.paper.theory.quadratic import family
from altmin.paper.theory.table import remarks, table


def theory(
    blocks: Annotated[str, typer.Option(metavar="K,K,...", help="Numbers of blocks, from 2 to 8.")] = "2,4,8",
    coupling: Annotated[str, typer.Option(metavar="X,X,...", help="As parts of the theorem's limit.")] = "0,0.5,0.9",
    condition: Annotated[str, typer.Option(metavar="X,X,...", help="Largest curvature over the least.")] = "1,10",
    noise: Annotated[float, typer.Option(min=0, help="Root mean square of a block's gradient noise.")] = 2.0,
    steps: Annotated[int, typer.Option(min=10, help="Rounds over all blocks.")] = 100_000,
    runs: Annotated[int, typer.Option(min=8, help="Runs of a problem; 1 in 2K of them past round 1,000.")] = 2_000,
    quick: Annotated[bool, typer.Option("--quick", help="At most 10,000 rounds and 1,000 runs.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="For the gradient noise.")] = 0,
    plot: options.Plot = None,
    json_file: options.Json = None,
) -> None:
    """Measure the paper's convergence theorem: error against bound, inside its assumptions and beyond."""
    output.check_writable(json_file, picture=plot)
    if quick:
        steps, runs = min(steps, 10_000), min(runs, 1_000)
    for option, text in ("--blocks", blocks), ("--coupling", coupling), ("--condition", condition):
        parse.names(option, text)
    K = parse.numbers("--blocks", blocks, int)
    shares, kappas = parse.numbers("--coupling", coupling, float), parse.numbers("--condition", condition, float)
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
    output.write_json(json_file, result)
    if plot is not None:
        from altmin.paper.theory import picture  # matplotlib takes a second to import

        output.write(plot, picture.draw(result, plot.suffix[1:]))
    if broken := [row for row in result["rows"] if not row["outside"] and row["broken"]]:
        print(
            f"the bound is broken inside the theorem, first by K = {broken[0]['K']}, coupling {broken[0]['coupling']:g}"
        )
        raise typer.Exit(1)
