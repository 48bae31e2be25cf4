"""`python -m reproduction tables`: fills the tables of the documents from the results."""

from typing import Annotated

import typer

from reproduction.tables import ROOT, stale


def tables(
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit with 1 if a document differs from the results.")
    ] = False,
) -> int:
    """Fill the tables of all documents from the results. Nothing is trained."""
    changed = stale()
    for path, text in changed:
        print(f"{path.relative_to(ROOT)}: {'differs from the results' if check else 'filled'}")
        if not check:
            path.write_text(text)
    return int(check and bool(changed))
