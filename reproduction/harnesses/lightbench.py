"""LightBench's problems for optimizers that have layers and take seconds on a CPU."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from altmin import methods
from altmin.common.errors import Diverged
from reproduction.case import Case
from reproduction.harnesses.packages import harness
from reproduction.results import Row, Setting

OPTIMIZERS = {"CoActivation": "coactivation", "AdamW": "adamw", "Muon": "muon", "SOAP": "soap"}
RATES = (0.001, 0.004, 0.016)
SEQUENCES = tuple(f"xor_{name}{kind}" for name in ("digit", "sequence", "spot") for kind in ("", "_rnn"))
PROBLEMS = [(name, level) for name in ("class_imbalance_rare", "transfer_domain_shift", *SEQUENCES)
            for level in ("trivial", "easy")]  # fmt: skip
STEPS = {"steps": 512, "group": 64}
"""The most steps, and after how many LightBench asks whether the condition was met in one of them."""


class OnCpu(TorchFunctionMode):
    """Takes the CPU wherever "cuda" is written: LightBench knows no other device."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = dict(kwargs or {})
        if str(options.get("device")).startswith("cuda"):
            options["device"] = "cpu"
        return args[0] if function is Tensor.cuda else function(*args, **options)


def optimize(case: Case, seed: int, setting: Setting) -> Row:
    """Whether LightBench's condition for success was met after one of its checks, the steps to there, and the loss.

    Its `Objective` trains the model, and gives up as it does in a search. Of the four options of a search ours is the
    rate alone."""
    import reproduction.opponents  # noqa: F401  (SOAP)

    utils, problem = harness("lightbench.utils"), harness(f"lightbench.{case['problem']}")
    given: list[Any] = []
    problem.trial = lambda model, data, loss, win, *_, **__: given.extend((model, data, loss, win))
    steps, passed, method = case["steps"], [False], OPTIMIZERS[case.options["optimizer"]]

    def won(model: nn.Module, loss: float) -> Any:
        passed[0] |= (answer := win(model, loss))[0]
        return answer

    def batch() -> Any:
        counted.append(1)
        if data is None:
            return None, None
        with OnCpu():
            return data()

    def optimizer(params: Any, lr: float) -> Any:
        return methods.create(method, trial.m, lr=lr, weight_decay=0.0).optimizer

    counted: list[int] = []
    with OnCpu():
        utils.set_seed(seed)
        problem.main("float32", config=case["level"], steps=steps, weight_decay=0.0, opt="", trials=1,
                     win_condition_multiplier=1.0)  # fmt: skip
        model, data, loss, win = given
        trial = utils.Objective(1, model, optimizer, steps, case["group"], batch, loss, won, 0.0, 1, None, device="cpu")
        checks = trial.validator.new()
    trial.validator.new = lambda: checks  # made where "cuda" is the CPU
    utils.set_seed(seed)
    try:
        last = trial._inner((case.options["lr"], 0.1, 0.001, 0.001))[2]
    except (Diverged, torch.linalg.LinAlgError):
        last = float("nan")
    return {"passed": bool(passed[0]), "steps": len(counted), "loss": repr(last)}
