"""The report: one HTML page of the paper's claims and all figures, which loads nothing from elsewhere."""

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from reproduction.claims import summary
from reproduction.figure import Figure
from reproduction.results import RESULTS, words

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; color: #222; } img {
max-width: 100%; } table { border-collapse: collapse; font-size: 14px; } .scroll { overflow-x: auto; } th, td { padding:
.25rem .6rem; border-bottom: 1px solid #ddd; text-align: left; vertical-align: top; } summary { cursor: pointer;
padding: .25rem 0; } b.reproduced, b.reached { color: #05674b; } b.undecided,
b.not-reproduced, b.not-reached { color: #8a4b00; } b.refuted { color:
#93195b; } code { background: #f3f3f3; padding: .1rem .3rem; } @media (prefers-color-scheme: dark) { body { background:
#161616; color: #ddd; } img { background: white; }
  code { background: #2a2a2a; } th, td { border-color: #444; } a { color: #7ab8ff; } b { filter: brightness(2); } }
"""


def page(figures: Mapping[str, Figure], verdicts: Sequence[Mapping[str, Any]]) -> str:
    """Return the page, which depends on figures, committed results and pictures, and the rows of `verify` alone."""
    ordered = sorted(figures.values(), key=lambda each: min((int(claim.id[1:]) for claim in each.claims), default=99))
    drawn = [each for each in ordered if each.axes]
    links = " ".join(f'<a href="#{each.name}">{escape(each.name)}</a>' for each in drawn)
    body = [f"<h1>The paper, made again</h1><p>{escape(summary(verdicts))}</p>", *map(_claim, verdicts)]
    body += [f"<p>Figures: {links}</p>", *map(_figure, drawn)]
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    head += f"<title>The paper, made again</title><style>{STYLE}</style>"
    text = "\n".join(body)
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head>\n<body>\n{text}\n</body></html>\n'


def _claim(row: Mapping[str, Any]) -> str:
    statements = [
        [
            escape(each["text"]),
            _verdict(each["printed"]),
            _verdict(each["ours"]),
            *(escape(each[key]) for key in ("criterion", "numbers", "because")),
        ]
        for each in row["statements"]
    ]
    ours = f", with our step {_verdict(row['ours'])}" if row["ours"] else ""
    head = f"{row['claim']} {escape(row['text'])}: as printed {_verdict(row['printed'])}{ours}"
    table = _table(["statement", "as printed", "with our step", "criterion", "numbers", "because"], statements)
    return f"<details><summary>{head}</summary><p>The paper: {escape(row['paper'])}</p>{table}</details>"


def _verdict(name: str) -> str:
    return f'<b class="{name.replace(" ", "-")}">{name}</b>'


def _figure(figure: Figure) -> str:
    """Return a section with the picture, where curves end, and how the figure is made."""
    results, picture = figure.results, RESULTS / f"{figure.name}.png"
    parts = [f'<h2 id="{figure.name}">{escape(figure.name)}: {escape(figure.title)}</h2>']
    if picture.exists():
        image = b64encode(picture.read_bytes()).decode()
        parts.append(f'<img alt="{escape(figure.title)}" src="data:image/png;base64,{image}">')
    axis = figure.axes[0]
    ends = [
        [*map(escape, (curve.panel, curve.name)), f"{curve.points[-1][0]:g}", words(curve.points[-1][1], ".4g")]
        for curve in figure.curves(results, axis)
    ]
    table = _table(["panel", "curve", f"at, in {axis}", figure.measure], ends)
    machines = {str(row["environment"].get("gpu") or row["environment"].get("cpu")) for row in results.rows}
    made, planned = sum(len(results.of(run)[: run.seeds]) for run in figure.runs), sum(run.seeds for run in figure.runs)
    parts.append(f"<p>{made} of {planned} runs, on {escape(', '.join(sorted(machines)))}. Make it: ")
    parts.append(f"<code>python -m reproduction figure {figure.name}</code>, {figure.minutes:g} min on an H200.</p>")
    return "\n".join([*parts, f"<details><summary>Where the curves end</summary>{table}</details>"])


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of cells that are HTML."""
    cells = [f"<tr>{''.join(f'<th>{escape(name)}</th>' for name in head)}</tr>"]
    cells += [f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows]
    return f'<div class="scroll"><table>{"".join(cells)}</table></div>'
