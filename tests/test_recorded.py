"""Replaying a recorded step gives the numbers of the step: in float64, so that nothing hides in rounding.

On a CPU, which records nothing, a stand-in runs the step instead of replaying it: there the tests see what goes on
around a recording (batches of other shapes, steps to be made up for, epochs, ensembles), on a GPU the recording too.
"""

import copy
import warnings

import pytest
import torch
from torch import nn

import altmin
from altmin.execution import Recorded
from altmin.execution.graph import Program
from altmin.fit import fit, train_on_device
from altmin.methods.backprop import Backprop

F64 = torch.float64
ON_GPU = pytest.mark.cuda
place = "cpu"


class Rerun(Program):
    """Does again what a recording would replay."""

    def __init__(self, lane, action, fuse=None):
        self.lane, self.action = lane, action
        lane.before()

    def run(self):
        return self.action()


@pytest.fixture(autouse=True, params=["cpu", pytest.param("cuda", marks=ON_GPU)])
def device(request, monkeypatch):
    global place
    place = request.param
    if place == "cpu":
        for module in ("altmin.execution.graph", "altmin.fit.on_device"):
            monkeypatch.setattr(f"{module}.Program", Rerun)
            monkeypatch.setattr(f"{module}.demand_cuda", lambda model: None)
    return place


def deep() -> nn.Sequential:
    layers = [m for _ in range(12) for m in (nn.Linear(8, 8), nn.ReLU())]
    return nn.Sequential(nn.Linear(7, 8), nn.ReLU(), *layers, nn.Linear(8, 3))


NETS = {
    "mlp": (lambda: altmin.models.mlp(7, (9, 8), 3), (7,)),
    "deep": (deep, (7,)),
    "tanh": (lambda: altmin.models.mlp(7, (9, 8), 3, nn.Tanh), (7,)),
    "lenet5": (lambda: altmin.models.lenet5(3), (1, 28, 28)),
    "elman": (lambda: altmin.models.elman(4, 6, 2, 3), (6, 2)),
}


def build(net: str, method: str, **options) -> altmin.methods.Method:
    torch.manual_seed(0)
    model = NETS[net][0]().to(place, F64)
    if method in ("adam", "sgd"):  # whose rate on the device is a float32
        options |= {"fused": True, "lr": 2**-10 if method == "adam" else 2**-4}
    return altmin.methods.create(method, model, **options)


def batches(net: str, count: int, size: int = 12, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        x = torch.randn(size, *NETS[net][1], dtype=F64, generator=generator)
        yield x.to(place), torch.randint(3, (size,), generator=generator).to(place)


def same(a: nn.Module, b: nn.Module) -> None:
    for p, q in zip(a.parameters(), b.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-8, atol=1e-9)


CASES = [
    *((net, "am-adam", False) for net in NETS),
    *(("deep", "am-sgd", False), ("mlp", "adam", False), ("lenet5", "sgd", False), ("mlp", "sgd", False)),
    *(("mlp", "am-adam", True), ("deep", "am-adam", True), ("lenet5", "am-adam", True)),  # each compiles for a while
]


@pytest.mark.parametrize("net, method, fuse", CASES)
def test_a_recorded_step_is_the_step(net, method, fuse, device):
    if fuse and device == "cpu":
        pytest.skip("only a recording is compiled")
    ordinary, data = build(net, method), list(batches(net, 10))
    recorded = Recorded(build(net, method), *data[0], fuse=fuse)
    same(ordinary.model, recorded.model)  # rehearsals leave no trace
    for x, y in data:
        expected = ordinary.step(x, y).loss
        torch.testing.assert_close(recorded.step(x, y).loss, expected, rtol=1e-8, atol=1e-10)
    recorded.look()
    same(ordinary.model, recorded.model)


def test_a_method_that_has_begun_goes_on():
    for name in ("am-adam", "adam"):
        ordinary, other = build("deep", name), build("deep", name)
        data = list(batches("deep", 9))
        for x, y in data:
            ordinary.step(x, y)
        for x, y in data[:3]:
            other.step(x, y)
        recorded = Recorded(other, *data[0], fuse=False)
        for x, y in data[3:6]:
            recorded.step(x, y)
        recorded.look()
        for x, y in data[6:]:
            other.step(x, y)
        same(ordinary.model, other.model)


def test_a_batch_of_another_shape_takes_the_ordinary_step_and_it_is_said_once():
    ordinary, other = build("mlp", "am-adam"), build("mlp", "am-adam")
    data = [*batches("mlp", 3), *batches("mlp", 2, size=5, seed=1), *batches("mlp", 2, seed=2)]
    recorded = Recorded(other, *data[0], fuse=False)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for x, y in data:
            ordinary.step(x, y)
            recorded.step(x, y)
    recorded.look()
    same(ordinary.model, recorded.model)
    assert [str(w.message) for w in said if "recorded" in str(w.message)] == [
        "a batch of (5, 7) takes the ordinary step; recorded are those of (12, 7)"
    ]
    assert recorded.others == 2


def test_a_step_that_must_be_halved_is_made_up_for():
    """Large weights and a small mu: the Gauss-Newton step overshoots for some samples."""

    def make() -> altmin.AltMin:
        method = build("mlp", "am-adam", penalty=1e-3)
        with torch.no_grad():
            for p in method.model.parameters():
                p.mul_(6)
        return method  # type: ignore[return-value]

    ordinary, other = make(), make()
    data = list(batches("mlp", 8))
    doubtful = 0
    for x, y in data:
        with torch.no_grad():
            found = ordinary.attempt(x, y, 1e-3, altmin.codes.linesearch.Doubts(wait=False)).doubtful
        doubtful += bool(found is not None and found.any())
        ordinary.step(x, y)
    assert doubtful > 0, "the case must occur to be tested"
    recorded = Recorded(other, *data[0], fuse=False)
    for x, y in data:
        recorded.step(x, y)
    recorded.look()
    same(ordinary.model, recorded.model)


def test_bad_input_is_found_and_nothing_is_spoilt():
    recorded = Recorded(build("mlp", "am-adam"), *next(batches("mlp", 1)), fuse=False)
    ordinary, (x, y) = build("mlp", "am-adam"), next(batches("mlp", 1))
    recorded.step(torch.full_like(x, torch.nan), y)
    recorded.step(x, y)
    with pytest.raises(ValueError, match="NaN or infinite"):
        recorded.look()
    ordinary.step(x, y)
    same(ordinary.model, recorded.model)


@pytest.mark.parametrize("method", ["am-adam", "adam"])
def test_fit_with_a_schedule_and_a_smaller_last_batch(method):
    x, y = (torch.cat(t) for t in zip(*batches("mlp", 5), strict=True))
    runs = []
    for record in (False, True):
        made = build("mlp", method)
        if record:
            made = Recorded(made, fuse=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            history = fit(made, (x, y), (x, y), epochs=3, batch_size=16, seed=3, schedule="cosine")
        runs.append((made.model, [row["train_loss"] for row in history.epochs]))
    same(runs[0][0], runs[1][0])
    assert runs[0][1] == pytest.approx(runs[1][1], rel=1e-8)


@pytest.mark.parametrize("method", ["am-adam", "am-sgd", "adam"])
def test_whole_epochs_on_the_device_are_those_of_fit(method):
    x, y = (torch.cat(t) for t in zip(*batches("mlp", 5), strict=True))
    ordinary, other = build("mlp", method), build("mlp", method)
    history = fit(ordinary, (x, y), epochs=3, batch_size=16, seed=3)
    losses = train_on_device(other, x, y, batch_size=16, epochs=3, seeds=[3], fuse=False)
    same(ordinary.model, other.model)
    assert losses == pytest.approx([row["train_loss"] for row in history.epochs], rel=1e-8)


def test_replays_never_wait_for_the_device(device):
    if device == "cpu":
        pytest.skip("a CPU does not make itself wait")
    for name in ("am-adam", "adam"):
        recorded = Recorded(build("deep", name), *next(batches("deep", 1)), fuse=False)
        data = list(batches("deep", 20))
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            for x, y in data:
                recorded.step(x, y)
        finally:
            torch.cuda.set_sync_debug_mode("default")


def test_backprop_is_recorded_whatever_its_adam_was_told():
    torch.manual_seed(0)
    model = NETS["mlp"][0]().to(place, F64)
    plain = Backprop(model, torch.optim.Adam(model.parameters(), 2**-7))
    ordinary = Backprop(copy.deepcopy(model), None)  # type: ignore[arg-type]
    ordinary.optimizer = torch.optim.Adam(ordinary.model.parameters(), 2**-7)
    data = list(batches("mlp", 6))
    recorded = Recorded(plain, *data[0], fuse=False)
    for x, y in data:
        ordinary.step(x, y)
        recorded.step(x, y)
    for p, q in zip(ordinary.model.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-6)  # it counts in float32


# -- ensembles --------------------------------------------------------------------------------------------------------


def crew(net: str, method: str, rates=(0.001, 0.01, 0.03), **options) -> altmin.Ensemble:
    made = []
    for seed, lr in enumerate(rates):
        torch.manual_seed(seed)
        model = NETS[net][0]().to(place, F64)
        made.append(altmin.methods.create(method, model, lr=lr, **options))
    return altmin.Ensemble(made)


@pytest.mark.parametrize(
    "net, method", [("mlp", "am-adam"), ("deep", "am-sgd"), ("lenet5", "am-adam"), ("mlp", "adam")]
)
def test_a_recorded_ensemble_is_the_ensemble(net, method):
    ordinary, other = crew(net, method), crew(net, method)
    data = list(batches(net, 6))
    recorded = Recorded(other, *data[0])
    for x, y in data:
        expected = ordinary.step(x, y).loss
        torch.testing.assert_close(recorded.step(x, y).loss, expected, rtol=1e-8, atol=1e-10)
    recorded.look()
    same(ordinary.model, other.model)


def test_epochs_of_an_ensemble_on_the_device_are_those_of_fit_ensemble():
    x, y = (torch.cat(t) for t in zip(*batches("mlp", 5), strict=True))
    for seeds in ([3, 4, 5], [3, 3, 3]):
        ordinary, other = crew("mlp", "am-adam"), crew("mlp", "am-adam")
        histories = altmin.fit.fit_ensemble(ordinary, (x, y), epochs=2, batch_size=16, seeds=seeds)
        losses = train_on_device(other, x, y, batch_size=16, epochs=2, seeds=seeds, fuse=False)
        same(ordinary.model, other.model)
        recorded = Recorded(crew("mlp", "am-adam"), fuse=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            again = altmin.fit.fit_ensemble(recorded, (x, y), epochs=2, batch_size=16, seeds=seeds)
        same(ordinary.model, recorded.model)
        assert again[2].epochs[-1]["train_loss"] == pytest.approx(histories[2].epochs[-1]["train_loss"], rel=1e-8)
        for i, history in enumerate(histories):
            found = [epoch[i] for epoch in losses]
            assert found == pytest.approx([row["train_loss"] for row in history.epochs], rel=1e-8)


def test_members_in_doubt_are_made_up_for():
    def make() -> altmin.Ensemble:
        ensemble = crew("mlp", "am-adam", penalty=1e-3)
        with torch.no_grad():
            for p in ensemble.model.parameters():
                p.mul_(6)
        return ensemble

    ordinary, other, seen = make(), make(), make()
    data = list(batches("mlp", 8))
    doubtful = 0
    for x, y in data:
        seen.advance(x, y)
        doubtful += int(seen.doubtful.any())
        ordinary.step(x, y)
    assert doubtful > 0, "the case must occur to be tested"
    recorded = Recorded(other, *data[0])
    for x, y in data:
        recorded.step(x, y)
    recorded.look()
    same(ordinary.model, other.model)


def test_a_recording_whose_weights_were_moved_elsewhere_says_so():
    """By another recording, by the model, by the optimizer: it would train what nobody sees."""
    data = list(batches("deep", 3))
    x, y = (torch.cat(t) for t in zip(*data, strict=True))
    moves = [
        lambda method: train_on_device(method, x, y, batch_size=12, fuse=False),
        lambda method: method.model.float().double(),
        lambda method: method.optimizer.load_state_dict(copy.deepcopy(method.optimizer.state_dict())),
    ]
    for move in moves:
        recorded = Recorded(build("deep", "am-adam"), *data[0], fuse=False)
        recorded.step(*data[0])
        recorded.look()
        move(recorded.method)
        with pytest.raises(ValueError, match=r"no longer lie.*make a new Recorded"):
            recorded.step(*data[1])


def test_who_asks_for_the_model_in_between_gets_it_up_to_date():
    """A batch that is not taken holds up those after it until somebody looks."""
    ordinary, recorded = build("mlp", "am-adam"), Recorded(build("mlp", "am-adam"), fuse=False)
    data = list(batches("mlp", 4))
    for x, y in data:
        ordinary.step(x, y)
        recorded.step(x, y)
        recorded.lane.fine.fill_(False)  # as if the next one had to be halved
    assert recorded.penalty.value == pytest.approx(ordinary.penalty.value)
    same(ordinary.model, recorded.model)


def test_fit_evaluates_a_recorded_model_that_is_up_to_date(monkeypatch):
    x, y = (torch.cat(t) for t in zip(*batches("mlp", 4), strict=True))
    judge, runs = altmin.execution.lanes._judge, []

    def doubtful(fine, *rest):
        loss = judge(fine, *rest)
        fine.fill_(False)
        return loss

    for record in (False, True):
        seen: list[torch.Tensor] = []
        monkeypatch.setattr("altmin.fit.run.accuracy", lambda m, _, seen=seen: seen.append(m[-1].bias.clone()) or 0.0)
        made = build("mlp", "am-adam")
        if record:
            monkeypatch.setattr("altmin.execution.lanes._judge", doubtful)
            made = Recorded(made, fuse=False)
        fit(made, (x, y), (x, y), epochs=1, batch_size=12, eval_batches=[2, 3])
        runs.append(torch.stack(seen))
    torch.testing.assert_close(*runs, rtol=1e-8, atol=1e-9)


def test_epochs_on_the_device_refuse_what_fit_refuses_and_leave_out_a_single_normed_sample():
    x, y = (torch.cat(t) for t in zip(*batches("mlp", 2, size=13), strict=True))
    for size, words in ((0, "batch_size must be at least 1"), (27, "a full batch is needed")):
        with pytest.raises(ValueError, match=words):
            train_on_device(build("mlp", "am-adam"), x, y, batch_size=size)
    runs = []
    for on_device in (False, True):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(7, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3)).to(place, F64)
        method = altmin.methods.create("adam", model, fused=True, lr=2**-10)
        if on_device:
            losses = train_on_device(method, x[:25], y[:25], batch_size=12, seeds=[3], fuse=False)
        else:
            losses = [
                row["train_loss"] for row in fit(method, (x[:25], y[:25]), epochs=1, batch_size=12, seed=3).epochs
            ]
        runs.append((model, losses))
    same(runs[0][0], runs[1][0])
    assert runs[0][1] == pytest.approx(runs[1][1], rel=1e-8)


def test_a_batch_for_each_member_is_told_from_one_for_all():
    """Targets that are numbers can be either: what the step was told is recorded."""
    torch.manual_seed(0)
    x, y = torch.randn(2, 4, 5, dtype=F64, device=place), torch.randn(2, 4, 3, dtype=F64, device=place)

    def make() -> altmin.Ensemble:
        members = []
        for seed in range(2):
            torch.manual_seed(seed)
            net = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 3)).to(place, F64)
            members.append(altmin.methods.create("am-adam", net, loss=nn.MSELoss()))
        return altmin.Ensemble(members)

    ordinary, recorded = make(), Recorded(make(), fuse=False)
    for _ in range(3):
        expected = ordinary.step(x, y, each=True).loss
        torch.testing.assert_close(recorded.step(x, y, each=True).loss, expected, rtol=1e-8, atol=1e-10)
    same(ordinary.model, recorded.model)
