"""Figures that let several methods loose on several nets: their runs and searches from one table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from altmin.common.describe import plain
from reproduction.run import Run
from reproduction.search import Between, Search
from reproduction.settings import settings

Space = Mapping[str, Between | Sequence[Any]]


@dataclass(frozen=True)
class Entry:
    """A method of a figure. options: those before a search, which alone are fixed if they are not in its space. run:
    what its runs have of their own, such as their batch size. search: what its searches have of their own, as in
    `Search`, and as "run" what the runs have that they train. paper: by net, the learning rate that the paper found:
    shown beside what a search finds, or, without a space, the rate of the run."""

    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    space: Space = field(default_factory=dict)
    run: Mapping[str, Any] = field(default_factory=dict)
    search: Mapping[str, Any] = field(default_factory=dict)
    paper: Mapping[str, float] = field(default_factory=dict)

    def on(self, figure: str, model: str, common: Mapping[str, Any]) -> Run:
        """Its run on a net, with the options that a search has chosen."""
        run = Run(self.method, model, **{**common, **self.run})
        if not self.space:
            return replace(run, options={**self.options, **self._paper(model)})
        fixed = {name: value for name, value in self.options.items() if name not in self.space}
        about = {"freeze_first": run.freeze_first, "schedule": run.schedule, "options": plain(fixed)}
        found = settings(figure, method=self.method, model=model, data=run.data, default=self.options, **about)
        return replace(run, options=found)

    def searched(self, run: Run) -> Search:
        """The search for the options of its run on a net."""
        given = dict(self.search)
        trained = replace(run, options=self.options, **given.pop("run", {}))
        return Search(trained, self.space, paper=self._paper(run.model), **given)

    def _paper(self, model: str) -> dict[str, float]:
        return {"lr": self.paper[model]} if model in self.paper else {}


def runs_of(
    figure: str, entries: Sequence[Entry], models: Sequence[str], panel: str = "", **common: Any
) -> tuple[dict[tuple[str, str], Run], list[Search]]:
    """The runs of every entry on every net by (net, name of the run), and the searches of those that have a space.
    panel: said behind data and net in the titles of their panels."""
    made = [(entry, entry.on(figure, model, common)) for model in models for entry in entries]
    if panel:
        made = [(entry, replace(run, title=f"{run.panel}, {panel}")) for entry, run in made]
    searches = [entry.searched(run) for entry, run in made if entry.space]
    return {(run.model, run.name): run for _, run in made}, searches
