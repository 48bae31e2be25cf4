"""Deep binary nets: commitment beside straight-through estimation.

Rates are the best of `RATES` on validation data, with seed 0.
"""

import time
import warnings
from typing import Any

import torch

import altmin
from altmin.layers import Committed
from altmin.training import fit
from altmin.training.commitment import Commitment
from reproduction.case import Case
from reproduction.figure import Figure
from reproduction.measurements import results
from reproduction.results import Row, Setting, words
from reproduction.tables import markdown, table

RATES = (0.0003, 0.001, 0.003, 0.01)
CHOSEN = {
    ("mnist", 2): {"commitment": 0.01, "straight-through": 0.003, "straight-through, plain": 0.001},
    ("mnist", 4): {
        **{"commitment": 0.01, "commitment, plain": 0.001, "straight-through": 0.003},
        **{"straight-through, plain": 0.001, "straight-through, frozen": 0.01},
    },
    ("mnist", 8): {"commitment": 0.01, "straight-through": 0.003, "straight-through, plain": 0.001},
    ("fashion-mnist", 3): {"commitment": 0.003, "straight-through": 0.01},
}
"""By data and number of sign layers, of 500 units or, with binary weights, convolutional; then by method. All but the
plain ones have batch norm, and dropout where layers are fully connected; in a frozen one the first layer stays."""

NETS = {
    "mnist": "MNIST, {} sign layers of 500",
    "fashion-mnist": "Fashion-MNIST, convolutional, binary weights",
}


def model_of(case: Case) -> torch.nn.Module:
    activation: Any = Committed if case["method"].startswith("commitment") else altmin.Sign
    if case["data"] == "fashion-mnist":
        return altmin.models.binary_cnn(width=8, activation=activation)
    more: Row = {} if case["method"].endswith("plain") else {"batch_norm": True, "dropout": 0.1}
    model = altmin.models.binary_mlp(hidden=[500] * case["layers"], activations=activation, **more)
    if case["method"].endswith("frozen"):
        altmin.models.freeze_first(model)
    return model


def train(case: Case, seed: int, setting: Setting) -> Row:
    """One run with a rate that falls to zero along a cosine."""
    samples = setting.samples(case["data"], "train", case.settings.get("limit"))
    x, y = setting.samples(case["data"], case.part)
    torch.manual_seed(seed)
    commits = case["method"].startswith("commitment")
    model = model_of(case).to(setting.device)
    method = altmin.methods.create("am-adam" if commits else "straight-through", model, **case.options)
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        history = fit(
            *(method, samples, (x, y)),
            **{"epochs": case["epochs"], "batch_size": 200, "seed": seed, "schedule": "cosine"},
            callbacks=[Commitment()] if commits else [],
        )
    row: Row = {"curve": [each["test_accuracy"] for each in history.epochs]}
    row["seconds"] = round(time.perf_counter() - start)
    return row


def case(net: tuple[str, int], method: str, rate: float, part: str, seeds: int) -> Case:
    data, layers = net
    settings = {"data": data, "layers": layers, "method": method, "epochs": 10}
    return Case(train, settings, {"lr": rate}, part, seeds, small={"epochs": 1, "limit": 2000})


TRIED = [
    case(net, method, rate, "validation", 1)
    for net, methods in CHOSEN.items()
    for method in methods
    for rate in (RATES if (net[1], method.endswith("plain")) != (8, False) else RATES[1:])
]
CASES = [case(net, method, rate, "test", 3) for net, rates in CHOSEN.items() for method, rate in rates.items()]
FIGURES = [Figure("binary", "Deep binary nets", [*CASES, *TRIED], axes=(), minutes=240)]


@table("binary.accuracy")
def accuracy() -> str:
    lines = []
    for each in CASES:
        rows = results("binary").all(each)
        net = NETS[each["data"]]
        name = each["method"].replace("plain", "no batch norm or dropout").replace("frozen", "first layer **frozen**")
        ends = words([row["curve"][-1] for row in rows], ".4f")
        lines.append([net.format(each["layers"]), name, f"{each.options['lr']:g}", ends])
    return markdown(["net", "method", "rate", "test accuracy"], lines)
