"""`python -m reproduction verify`: the paper's claims beside what was found."""

from typing import Annotated

import typer

from altmin.cli import output
from altmin.cli.options import Json
from reproduction.claims import summary
from reproduction.figure import verdicts
from reproduction.tables import ROOT, stale


def verify(
    full: Annotated[
        bool, typer.Option("--full", help="Show the statements of each claim, with their numbers.")
    ] = False,
    json_file: Json = None,
) -> int:
    """Print the paper's claims: whether the algorithm as printed shows each, and whether ours does. Exits with 1 if a
    document quotes other numbers than the results."""
    output.check_writable(json_file)
    rows = verdicts()
    for row in rows:
        print(f"{row['claim']:4} {row['printed']:14}  {row['ours'] or '-':11}  {row['text']}")
        for each in row["statements"] if full else ():
            print(f"     {each['printed'] or '-':14}  {each['ours'] or '-':11}  - {each['text']}")
            for name in ("criterion", "numbers", "because"):
                if each[name]:
                    print(f"{'':37}{name}: {each[name]}")
    print(f"\nThe columns: the algorithm as the paper prints it; with our step.\n{summary(rows)}")
    output.write_json(json_file, rows)
    wrong = [str(path.relative_to(ROOT)) for path, _ in stale()]
    for path in wrong:
        print(f"{path} differs from the results; `python -m reproduction tables` fills it")
    return int(bool(wrong))
