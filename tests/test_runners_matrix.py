"""Every runner takes the steps of one process, with every rule and net: in float64, so that nothing hides in rounding.

Recorded steps are CUDA graphs on a GPU; on a CPU the same functions of tensors are called, compiled or not.
"""

from typing import Any

import pytest
import torch
from runner_cases import CUT, FEW, MORE, NETS, RULES, Course, alone, build, course, same

from altmin import Ensemble, Recorded

STEPS = 5
LONG = 10
"""Steps of compiled memories: the first 8 refresh them, which is not compiled on a CPU."""


def steps_of(run: Any, rule: str) -> int:
    whole = rule == "solved memory" and run in (compiled, compiled_ensemble)
    return LONG if whole or run is recorded_long else STEPS


def recorded(net: str, rule: str, device: str, fuse: bool = False, members: int = 2, steps: int = STEPS) -> Course:
    made = [build(net, rule, i, device) for i in range(members)]
    runs: list[Any] = [Recorded(method, fuse=fuse) for method in made]
    losses = [[run.step(x, y).loss for run in runs] for x, y in NETS[net].batches(steps, device)]
    for run in runs:
        run.end_epoch()
        assert run.others == 0
        fails = rule.startswith("inner steps") and torch.__version__.startswith("2.11")  # by a defect of its own
        assert not fuse or run.captured.compiled[0].works or fails, "torch could not compile it"
    return course(map(torch.stack, losses), made)


def recorded_long(net: str, rule: str, device: str) -> Course:
    return recorded(net, rule, device, steps=LONG)


def compiled(net: str, rule: str, device: str) -> Course:
    return recorded(net, rule, device, fuse=True, members=1, steps=steps_of(compiled, rule))


def ensemble(net: str, rule: str, device: str) -> Course:
    together = Ensemble([build(net, rule, i, device) for i in range(2)])
    losses = [together.step(x, y).loss for x, y in NETS[net].batches(STEPS, device)]
    together.end_epoch()
    assert together.diverged == {}
    return course(losses, together.methods)


def own_batches(net: str, rule: str, device: str) -> Course:
    """Every member is given the batch."""
    together = Ensemble([build(net, rule, i, device) for i in range(2)])
    data = [(torch.stack([x, x]), torch.stack([y, y])) for x, y in NETS[net].batches(STEPS, device)]
    losses = [together.step(x, y, each=True).loss for x, y in data]
    together.end_epoch()
    return course(losses, together.methods)


def recorded_ensemble(net: str, rule: str, device: str, fuse: bool = False, steps: int = STEPS) -> Course:
    together: Any = Recorded(Ensemble([build(net, rule, i, device) for i in range(2)]), fuse=fuse)
    losses = [together.step(x, y).loss for x, y in NETS[net].batches(steps, device)]
    together.end_epoch()
    assert not fuse or together.captured.compiled[0].works, "torch could not compile it"
    return course(losses, together.methods)


def compiled_ensemble(net: str, rule: str, device: str) -> Course:
    return recorded_ensemble(net, rule, device, fuse=True, steps=steps_of(compiled_ensemble, rule))


EVERY = [
    *((net, "adam") for net in FEW),
    *(("normed", rule) for rule in RULES if rule not in ("adam", "printed codes")),
]
EVERY += [
    ("other modules", "printed codes"),
    ("gpt", "solved memory"),
    ("convolutions", "sums"),
    ("resnet18", "sgd"),
    ("lstm", "sgd"),
]
WHOLE = [("normed", "adamw"), ("normed", "inner steps, l1, clipping"), ("convolutions", "adam")]
WHOLE += [
    ("normed", "solved memory"),
    ("normed", "sums"),
    ("elman", "adam"),
    ("lstm", "adam"),
    ("other modules", "adam"),
]
SLOW = [("normed", "adam"), ("12 layers", "sums"), ("Basic, 4 dimensions, cut inside", "adam"), ("gpt", "adam")]
SLOW += [("resnet18", "adam")]
BACKPROP = [("normed", "backprop sgd"), ("gpt", "backprop adam"), ("convolutions", "backprop adamw")]
TOGETHER = [("normed", "adam"), ("normed", "solved memory"), ("normed", "sums"), ("elman", "sgd")]
ROWS = [
    *((recorded, *case) for case in EVERY + BACKPROP),
    (recorded_long, "normed", "backprop coactivation"),
    *((ensemble, *case) for case in EVERY + BACKPROP),
    *((own_batches, net, "adam") for net in ("convolutions", "gpt", "regression", "elman")),
    *((recorded_ensemble, *case) for case in TOGETHER + BACKPROP[:1]),
    *((compiled, *case) for case in WHOLE),
    *((compiled_ensemble, *case) for case in TOGETHER[:1]),
    *(
        pytest.param(run, net, "adam", marks=pytest.mark.slow)
        for net in (*MORE, *CUT)
        for run in (recorded, ensemble)
        if run is recorded or not net.startswith("Tied")  # whose blocks share a parameter once it is cut
    ),
    *(pytest.param(compiled, *case, marks=pytest.mark.slow) for case in SLOW),
    pytest.param(compiled_ensemble, *TOGETHER[1], marks=pytest.mark.slow),
]


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def device(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.mark.parametrize("run, net, rule", ROWS, ids=lambda value: getattr(value, "__name__", None))
def test_a_runner_takes_the_steps_of_one_process(
    run: Any, net: str, rule: str, device: str, request: pytest.FixtureRequest
) -> None:
    if run in (compiled, compiled_ensemble) and device == "cpu":
        request.getfixturevalue("traced")
    expected, found = alone(net, rule, device, steps_of(run, rule)), run(net, rule, device)
    members = len(found.states)
    within = 1e-7 if run in (compiled, compiled_ensemble) else 1e-8  # a compiled step holds rates in float32
    same(found.losses, expected.losses[:, :members], within)
    same(
        found.states, expected.states[:members], 1e-6
    )  # a bias below batch norm has a gradient of rounding, which Adam scales
