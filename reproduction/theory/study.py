"""The study of `theory`: problems that fulfil the assumptions, the printed constants, and problems that do not."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from reproduction.theory import checks
from reproduction.theory.network import Network
from reproduction.theory.quadratic import Array, Quadratic, family
from reproduction.theory.scheme import Adam, Decay, Measured, Rule, Stack, run
from reproduction.theory.theorem import Constants

Report = Callable[[int, str], None]
Row = dict[str, Any]
ERRORS = 3
"""A mean counts as below the bound if this many standard errors above it still are."""
SHOWN = (10, 1_000, 10_000, 100_000)
"""The rounds of tables."""


@dataclass(frozen=True)
class Case:
    """A problem and how it is run. outside: which assumption it does not fulfil; empty where it fulfils all."""

    name: str
    problem: Quadratic
    kind: str = "corrected"
    outside: str = ""
    noise_part: float = 1.0
    """the part of the noise that a mini-batch leaves"""


@dataclass(frozen=True)
class Group:
    """Cases of the same shape that are run together. rule: another than the theorem's; order: see `scheme.run`."""

    cases: list[Case]
    rule: Callable[[], Rule] | None = None
    project: bool = True
    order: tuple[int, ...] | None = None

    def measure(self, steps: int, runs: int, seed: int, report: Callable[[int], None]) -> Measured:
        rule = self.rule() if self.rule else Decay([terms(case.problem.constants(), case.kind) for case in self.cases])
        left = [dataclasses.replace(case.problem, noise=case.problem.noise * case.noise_part) for case in self.cases]
        return run(Stack(left), rule, steps, runs, seed, self.project, self.order, report=report)


def terms(c: Constants, kind: str = "corrected") -> tuple[float, float, int]:
    """Return xi, gamma and K for the step size; past the limit of coupling, where the theorem has none, gamma = 0."""
    return c.xi(kind), c.gamma if c.gamma < c.limit(kind) else 0.0, c.blocks


def grid() -> list[Group]:
    """Return a group of cases for each number of blocks, with all couplings and conditions."""
    couplings, conditions = (0.0, 0.5, 0.9), (1.0, 10.0)
    return [Group([Case("quadratic", family(K, c, k)) for c in couplings for k in conditions]) for K in (2, 4, 8)]


def special() -> list[Group]:
    """Return cases that show the rates, the printed constants, and what happens where an assumption is not
    fulfilled."""
    still, noisy = family(2, 0, 1, noise=0), family(2, 0, 1, noise=8)
    uneven = family(2, 0, 10, noise=0)
    usual = family(2, 0.5, 10)
    wide = family(2, 0.5, 100)
    same = [
        Case("no noise", still),
        Case("no noise, uneven", uneven),
        Case("no noise, printed xi", uneven, "as-printed", "xi as printed"),
        Case("strong noise", noisy),
        Case("past the limit", family(2, 1.25, 10), outside="coupling past the limit"),
        Case("far past the limit", family(2, 1.6, 10), outside="coupling past the limit"),
        Case("mini-batch of 16", usual, outside="mini-batches", noise_part=0.25),
    ]
    return [
        Group(same),
        Group([Case("no projection", p, outside="no projection") for p in (usual, wide)], project=False),
        Group([Case("Adam, rate 0.01", usual, outside="Adam")], rule=Adam),
        Group([Case("5 steps in block 2", usual, outside="inner steps")], order=(0, 1, 1, 1, 1, 1)),
    ]


def networks() -> list[tuple[str, Network]]:
    """Return three networks: with all assumptions fulfilled; the same with one sample for each round; with a weak
    hold."""
    held = Network(hold=6.0, scale=0.3, penalty=3.0, reach=0.1, seed=1)
    shared = dataclasses.replace(held, fresh=False)
    free = Network(hold=0.01, scale=1.0, reach=0.1, seed=1)
    return [("network, held", held), ("same, 1 sample a round", shared), ("network, free", free)]


def study(steps: int, runs: int, seed: int, report: Report) -> Row:
    """Run everything and return rows, checks and reports as JSON can hold them. report: called with the rounds done,
    out of `rounds_in_all`, and the name of what is running."""
    groups = [*grid(), *special()]
    rows, reports = [], []
    for i, group in enumerate(groups):
        name = group.cases[0].outside or f"K = {group.cases[0].problem.blocks}"
        measured = group.measure(steps, runs, seed + i, lambda t, i=i, name=name: report(i * steps + t, name))  # type: ignore[misc]
        rows += [
            _row(case.name, case.problem, case.problem.constants(), case.kind, case.outside, measured, j)
            for j, case in enumerate(group.cases)
        ]
    for i, (name, net) in enumerate(networks()):
        report((len(groups) + i) * steps, name)
        constants = net.constants()
        found = net.assumptions(constants)
        failing = [a.name for a in found if not a.holds]
        outside = f"no {failing[0]}" if failing else "" if net.fresh else "one sample for all blocks"
        measured = run(net, Decay([terms(constants)]), min(steps, 10_000), max(8, runs // 2), seed + i)
        rows.append(_row(name, net, constants, "corrected", outside, measured, 0))
        known = [dataclasses.asdict(a) | {"margin": a.margin if np.isfinite(a.margin) else None} for a in found]
        reports.append({"case": name, "assumptions": known})
    checked = [dataclasses.asdict(c) | {"holds": c.holds} for c in lemmas()]
    after = checks.crossing()
    return {"rows": rows, "checks": checked, "printed_bound_broken_after": after, "reports": reports}


def rounds_in_all(steps: int) -> int:
    """Return how far `study` counts in its reports."""
    return (len(grid()) + len(special()) + len(networks())) * steps


def slope(times: Sequence[int], mean: Sequence[float] | Array) -> float | None:
    """The least-squares slope of log error against log t, from t = 1,000 on, or over the last decade of a shorter run.

    None if fewer than two errors there are positive and finite.
    """
    first = 1_000 if times[-1] >= 10_000 else times[-1] / 10
    kept = [(t, m) for t, m in zip(times, mean, strict=True) if t >= first and 0 < m < np.inf]
    if len(kept) < 2:
        return None
    x, y = np.log(np.array(kept, float)).T
    return float(np.polyfit(x, y, 1)[0])


def _row(
    name: str, problem: Quadratic | Network, c: Constants, kind: str, outside: str, measured: Measured, j: int
) -> Row:
    mean, error, limit, below, broken = measured.mean[j], measured.error[j], None, None, None
    if c.gamma < c.limit(kind):
        limit = np.asarray(c.bound(np.array(measured.times, float), problem.start_error, kind))
        with np.errstate(over="ignore"):
            below = bool((mean + ERRORS * error <= limit).all())
            broken = bool((mean - ERRORS * error > limit).any())
    return {
        "case": name,
        "K": c.blocks,
        "coupling": round(c.gamma / c.limit(), 6),
        "noise": float(problem.noise[0]) if isinstance(problem, Quadratic) else None,
        "condition": c.condition,
        "constants": {"kind": kind, "xi": c.xi(kind), "gamma": c.gamma, "sigma2": c.sigma2, **dataclasses.asdict(c)},
        "outside": outside,
        "times": measured.times,
        "runs": measured.runs,
        "mean": mean.tolist(),
        "standard_error": error.tolist(),
        "bound": None if limit is None else limit.tolist(),
        "below_bound": below,
        "broken": broken,
        "slope": slope(measured.times, mean),
        "tightness": None if limit is None else float(limit[-1] / mean[-1]),
    }


def lemmas() -> Iterator[checks.Check]:
    """The steps of the proof on curvatures 1 and 10, as printed and as corrected."""
    for version in ("as-printed", "corrected", "squared"):
        yield checks.contraction([1.0, 10.0], 2 / 11, version)
    problem = family(2, 0.5, 10, noise=0)
    slow = np.array([1.0, 0.0, 1.0, 0.0])  # both blocks along their slow axis
    for version in ("as-printed", "corrected"):
        yield checks.operator(problem, slow * [1, 1, -1, 1], 0, 2 / 11, version)
    uncoupled = family(2, 0, 10, noise=0)
    for version in ("as-printed", "corrected"):
        yield checks.one_step(uncoupled, np.outer(slow, slow), 1e-3, version, sup=True)


def table(title: str, rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Return head and rows of a table: mean squared error with its standard error, and the bound, after some rounds."""
    shown = [t for t in SHOWN if t <= max(rows[0]["times"])]
    found = []
    for row in rows:
        line = [row["case"], str(row["K"]), f"{row['coupling']:.3g}", f"{row['condition']:.3g}"]
        for t in shown:
            i = row["times"].index(t) if t in row["times"] else -1
            mean, error = row["mean"][i], row["standard_error"][i]
            digits = f"{mean:.2e}" + (f" ± {error:.0e}" if error > 1e-12 * mean else "")  # none without noise
            limit = f" / {row['bound'][i]:.1e}" if row["bound"] else ""
            line.append(digits + limit if t in row["times"] else "")
        ends = ((row["slope"], ".2f"), (row["tightness"], ".3g"))
        found.append([*line, *("" if value is None else format(value, form) for value, form in ends)])
    return [title, "K", "coupling", "condition", *(f"t = {t:,}" for t in shown), "slope", "bound / error"], found


def remarks(result: Mapping[str, Any]) -> list[str]:
    """Return what the table does not say: the verdict, the steps of the proof, and which assumption fails where."""
    inside = [row for row in result["rows"] if not row["outside"]]
    below = sum(bool(row["below_bound"]) for row in inside)
    lines = [
        f"Mean + 3 standard errors below the bound at every t in {below} of {len(inside)} problems of the theorem."
    ]
    for check in result["checks"]:
        sides = f"{check['left']:.4f} <= {check['right']:.4f} {'holds' if check['holds'] else 'FAILS'}"
        lines.append(f"{check['name']}, {check['version']}: {sides} ({check['where']})")
    after = result["printed_bound_broken_after"]
    lines.append(
        f"The bound with the printed xi, curvatures 1 and 10, is broken after {after:.1e} rounds (closed form)."
    )
    for report in result["reports"]:
        failing = (each for each in report["assumptions"] if not each["holds"])
        lines += [f"{report['case']}: {each['name']} fails at {each['where']}." for each in failing]
    return lines
