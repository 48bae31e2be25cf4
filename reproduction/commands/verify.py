"""`python -m reproduction verify`: the paper's claims beside what was found."""

from altmin.cli import output
from altmin.cli.options import Json
from reproduction.claims import summary
from reproduction.figure import verdicts
from reproduction.tables import ROOT, stale


def verify(json_file: Json = None) -> int:
    """Print the paper's claims: what it states, what the full runs found, the criterion of each statement and its
    verdict: reproduced, exceeded, differs or refuted. Exits with 1 if a document quotes other numbers than the
    results."""
    output.check_writable(json_file)
    rows = verdicts()
    for row in rows:
        print(f"\n{row['claim']}  {row['text']} ({row['paper']}): {row['verdict']}")
        for each in row["statements"]:
            print(f"    {each['verdict']}  {each['text']}")
            for name, key in (("criterion", "criterion"), ("found", "ours"), ("because", "because")):
                if each[key]:
                    print(f"        {name}: {each[key]}")
    print(f"\n{summary(rows)}")
    output.write_json(json_file, rows)
    wrong = [str(path.relative_to(ROOT)) for path, _ in stale()]
    for path in wrong:
        print(f"{path} differs from the results; `python -m reproduction tables` fills it")
    return int(bool(wrong))
