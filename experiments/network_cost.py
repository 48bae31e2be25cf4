"""What a step costs: AM beside backprop with Adam, in time and in memory, and backprop with gradient checkpointing."""

import gc
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from common import Row
from network_runs import Where, build
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import altmin
from altmin.methods.backprop import Backprop
from altmin.runners import precision
from altmin.runners.programs import can_fuse
from reproduction.speed import modes
from reproduction.speed.measure import spread, step_bytes, step_seconds, synthetic

Entry = tuple[str, str]
"""A method, "am", "backprop" or "checkpointed", and the mode in which its step runs."""
RATE = 1e-3


class Checkpointed(nn.Module):
    """The model, which keeps no more than the inputs of its modules with parameters for the backward pass: what lies
    from one of them to the next is computed again there."""

    def __init__(self, model: nn.Sequential):
        super().__init__()
        self.model = model
        parts: list[list[nn.Module]] = []
        for module in model:
            starts = any(True for _ in module.parameters()) and not isinstance(module, nn.BatchNorm2d)
            if starts or not parts:
                parts.append([])
            parts[-1].append(module)
        self.parts = [nn.Sequential(*part) for part in parts]

    def forward(self, x: Tensor) -> Tensor:
        for part in self.parts[:-1]:
            x = checkpoint(part, x, use_reentrant=False)  # type: ignore[assignment]
        out: Tensor = self.parts[-1](x)
        return out


@dataclass(frozen=True)
class Timing:
    """One net whose step is measured. modes: of `reproduction speed`; memory: whether to count bytes and to measure the
    checkpointed step too."""

    part: str
    model: str
    data: str
    batch_size: int
    modes: tuple[str, ...] = ("eager",)
    order: str = "codes-first"
    seconds: float = 30.0
    precision: str = "float32"
    memory: bool = True
    seed: int = 0
    device: str = "cpu"

    method = "time"

    @property
    def words(self) -> list[str]:
        """By which `--only` finds it."""
        return [self.model, self.method, f"seed{self.seed}", *self.modes]

    def identity(self) -> Row:
        """The beginning of its row."""
        config: Row = {"data": self.data, "batch_size": self.batch_size, "modes": list(self.modes), "order": self.order}
        config |= {"seconds": self.seconds, "precision": self.precision, "memory": self.memory, "device": self.device}
        return {"part": self.part, "model": self.model, "method": self.method, "seed": self.seed, "config": config}

    def entries(self) -> list[Entry]:
        """All that is tried. AM is not compiled by itself: a recorded step of it is, where torch can."""
        found = [(method, mode) for mode in self.modes for method in ("am", "backprop")]
        found = [entry for entry in found if entry[0] != "am" or "compile" not in entry[1]]
        return [*found, ("checkpointed", "eager")] if self.memory and "eager" in self.modes else found

    def make(self, entry: Entry, where: Where) -> Any:
        """A method ready to step, from the seed's weights."""
        torch.manual_seed(self.seed)
        model = build(self.model, self.data).to(where.device)
        name, mode = entry
        if name == "am":
            return modes.apply(mode, altmin.methods.create("am-adam", model, lr=RATE, order=self.order))
        method: Any = altmin.methods.create("adam", model, lr=RATE)
        if name == "checkpointed":
            method = Backprop(Checkpointed(model), method.optimizer)
        return modes.apply(mode, method)

    def execute(self, where: Where) -> Row:
        """Measures; the rest of its row. What cannot run stands under "skipped" with the reason."""
        known = altmin.data.dataset(self.data)
        torch.manual_seed(self.seed)
        batches = synthetic(known.sample_shape, known.classes, self.batch_size, where.device, tokens=known.tokens)
        if any("compile" in mode for mode in self.modes):
            torch.compiler.reset()
        with precision.using(self.precision):
            built, sizes, skipped = self._built(batches[0], where)
            print(f"{self.model}: measures {len(built)} for {self.seconds:g} s", file=sys.stderr, flush=True)
            times, steps = step_seconds(built, batches, self.seconds, self.seed)
        results = [
            {
                "method": entry[0],
                "mode": entry[1],
                "step_seconds": spread(times[entry]),
                "over_backprop": {
                    mode: ratios(times[entry], times["backprop", mode])
                    for method, mode in times
                    if method == "backprop"
                },
                "rounds": len(times[entry]),
                "steps_per_round": steps[entry],
                **sizes[entry],
            }
            for entry in times
        ]
        return {"results": results, "skipped": skipped, "recorded_is_compiled": can_fuse(torch.device("cuda"))}

    def _built(self, batch: Any, where: Where) -> tuple[dict[Entry, Any], dict[Entry, Row], list[Row]]:
        built: dict[Entry, Any] = {}
        sizes: dict[Entry, Row] = {}
        skipped: list[Row] = []
        for entry in self.entries():
            make, plain = partial(self.make, entry, where), partial(self.make, (entry[0], "eager"), where)
            try:
                built[entry], sizes[entry] = self._counted(make, plain, batch, "graph" in entry[1])
            except (ValueError, TypeError, RuntimeError) as error:
                reason = str(error).strip().partition("\n")[0]
                skipped.append({"method": entry[0], "mode": entry[1], "reason": reason})
                print(f"{self.model}: {' '.join(entry)} is left out: {reason}", file=sys.stderr, flush=True)
            gc.collect()
        return built, sizes, skipped

    def _counted(
        self, make: Callable[[], Any], plain: Callable[[], Any], batch: Any, recorded: bool
    ) -> tuple[Any, Row]:
        """A method that has made steps, and the bytes that it keeps and needs at most."""
        if not self.memory:
            method = make()
            for _ in range(2):
                method.step(*batch)
            return method, {}
        method, kept, peak = step_bytes(make, batch, plain, recorded)
        return method, {"kept_bytes": kept, "peak_bytes": peak}


def ratios(one: Sequence[float], other: Sequence[float]) -> dict[str, float]:
    """Median and quartiles of one / other, round by round."""
    return spread([a / b for a, b in zip(one, other, strict=True)])
