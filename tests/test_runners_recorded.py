"""Replaying a captured step gives the numbers of the step: in float64, so that nothing hides in rounding.

On a CPU, which has no CUDA graphs, a stand-in runs the step instead of replaying it: there the tests see what goes on
around a graph (batches of other shapes, steps that are not finite, states, ensembles), on a GPU the graph too.
"""

import copy
import warnings

import pytest
import torch
from capture_cases import F64, same, stand_in, steps
from torch import nn

import altmin
from altmin.methods.backprop import Backprop
from altmin.runners import Recorded
from altmin.runners.recorded import CHECK_EVERY
from altmin.training import fit

place = "cpu"


@pytest.fixture(autouse=True, params=["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def device(request, monkeypatch):
    global place
    place = request.param
    if place == "cpu":
        stand_in(monkeypatch)
    return place


NETS = {
    "mlp": (lambda: altmin.models.mlp(7, (9, 8), 3), (7,)),
    "deep": (lambda: altmin.models.mlp(7, (8,) * 12, 3), (7,)),
    "tanh": (lambda: altmin.models.mlp(7, (9, 8), 3, nn.Tanh), (7,)),
    "normed": (lambda: nn.Sequential(nn.Linear(7, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3)), (7,)),
    "lenet5": (lambda: altmin.models.lenet5(3), (1, 28, 28)),
    "elman in time": (lambda: altmin.models.elman(4, 6, 2, 3), (6, 2)),
    "residual mlp": (lambda: altmin.models.residual_mlp(8, 4, 7, 3), (7,)),
    "resnet18": (lambda: altmin.models.resnet18(2, 3), (3, 8, 8)),
    "gpt": (lambda: altmin.models.gpt(2, 8, 2, 6, 5), (6,)),
}


def build(net: str, method: str, **options) -> altmin.methods.Method:
    torch.manual_seed(0)
    model = NETS[net][0]().to(place, F64)
    options = {"lr": 2**-4 if "sgd" in method else 2**-10} | options  # rates are float32 on a device
    return altmin.methods.create(method, model, **options, **({"fused": True} if method in ("adam", "sgd") else {}))


def batches(net: str, count: int, size: int = 12, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        if net == "gpt":  # tokens
            yield tuple(torch.randint(5, (size, 6), generator=generator).to(place) for _ in range(2))
            continue
        x = torch.randn(size, *NETS[net][1], dtype=F64, generator=generator)
        yield x.to(place), torch.randint(3, (size,), generator=generator).to(place)


CASES = [
    *((net, "am-adam", False) for net in NETS),
    *(("deep", "am-sgd", False), ("mlp", "adam", False), ("lenet5", "sgd", False), ("mlp", "sgd", False)),
    *((net, "am-mem", False) for net in ("mlp", "deep", "normed", "lenet5", "gpt", "resnet18")),
    *((net, name, False) for net in ("mlp", "deep", "normed", "lenet5") for name in ("am-mem", "am-mem-fitted")),
    *(("mlp", "am-adam", True), ("deep", "am-adam", True), ("lenet5", "am-adam", True)),  # each compiles for a while
    *(
        ("mlp", "am-mem", True),
        ("lenet5", "am-mem", True),
        ("mlp", "am-mem-fitted", True),
        ("lenet5", "am-mem-fitted", True),
        ("resnet18", "am-adam", True),
        ("gpt", "am-adam", True),
    ),
    ("residual mlp", "am-adam", True),
    *((net, name, False) for net in ("mlp", "residual mlp", "normed") for name in ("predictive-coding", "pc-alm")),
    *((net, "am-adam-printed", False) for net in ("mlp", "lenet5", "normed", "elman in time")),
    *(("mlp", "am-mem-printed", False), ("deep", "am-sgd-printed", False)),
    *(
        ("resnet18", "am-sgd", False),
        ("resnet18", "sgd", False),
        ("gpt", "am-mem-fitted", False),
        ("gpt", "adam", False),
    ),
]


@pytest.mark.parametrize("net, method, fuse", CASES)
def test_a_recorded_step_is_the_step(net, method, fuse, device):
    if fuse and device == "cpu":
        pytest.skip("only a graph is compiled")
    ordinary, data = build(net, method), list(batches(net, 10))
    recorded = Recorded(build(net, method), *data[0], fuse=fuse)
    same(ordinary.model, recorded.model)  # capturing leaves no trace
    assert not fuse or recorded.captured.compiled.works, "torch could not compile it"
    found = [(recorded.step(x, y), ordinary.step(x, y)) for x, y in data]
    for ours, theirs in found:  # read late: the next replay overwrites nothing that was handed out
        torch.testing.assert_close(ours.loss, theirs.loss, rtol=1e-8, atol=1e-10)
        if method.startswith("am"):
            assert ours.objective == pytest.approx(theirs.objective, rel=1e-8)
            assert ours.penalty == theirs.penalty
    same(ordinary.model, recorded.model, 1e-8)


def test_a_batch_of_another_shape_takes_the_ordinary_step_and_it_is_said_once():
    ordinary, other = build("mlp", "am-adam"), build("mlp", "am-adam")
    data = [*batches("mlp", 3), *batches("mlp", 2, size=5, seed=1), *batches("mlp", 2, seed=2)]
    recorded = Recorded(other, *data[0], fuse=False)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for x, y in data:
            ordinary.step(x, y)
            recorded.step(x, y)
    same(ordinary.model, recorded.model, 1e-8)
    assert [str(w.message) for w in said if "captured" in str(w.message)] == [
        "a batch of (5, 7) takes the ordinary step; captured are those of (12, 7)"
    ]
    assert recorded.others == 2


@pytest.mark.parametrize("net", ["normed", "resnet18"])
def test_a_model_in_another_mode_takes_the_ordinary_step_and_it_is_said_once(net):
    """With statistics that are fixed in evaluation, which a recorded step would go on to change."""
    ordinary, other = build(net, "am-adam"), build(net, "am-adam")
    data = list(batches(net, 5))
    recorded = Recorded(other, *data[0], fuse=False)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for i, (x, y) in enumerate(data):
            for each in (ordinary, recorded):
                each.model.train(i not in (2, 3))
                each.step(x, y)
    same(ordinary.model, recorded.model, 1e-7)
    assert recorded.others == 2
    assert [str(w.message) for w in said if "another mode" in str(w.message)] == [
        f"a batch of {tuple(x.shape)}, in another mode than the model was captured in, takes the ordinary step; "
        f"captured are those of {tuple(x.shape)}"
    ]


def test_dropout_draws_other_masks_at_every_replay():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(7, 30), nn.Dropout(0.5), nn.ReLU(), nn.Linear(30, 3)).to(place, F64)
    recorded = Recorded(altmin.AltMin(model, weights=altmin.LocalSGD(2**-60, momentum=0.0)), fuse=False)
    x, y = next(batches("mlp", 1))
    losses = [float(recorded.step(x, y).loss) for _ in range(5)]
    assert len(set(losses)) == 5
    model.eval()
    with torch.no_grad():
        middle = float(nn.functional.cross_entropy(model(x), y))
    assert max(losses) - min(losses) < middle, "masks of another step, not of other weights"


@pytest.mark.parametrize(
    "method, ask",
    [
        *(("am-adam", ask) for ask in ("synchronize", "model", "penalty", "state_dict", "end_epoch")),
        ("am-mem-fitted", "look"),
    ],
)
def test_a_step_that_is_not_finite_is_found_when_somebody_asks(method, ask):
    ordinary, recorded = build("mlp", method), Recorded(build("mlp", method), fuse=False)
    data = list(batches("mlp", 4))
    steps(data[:2], ordinary.step, recorded.step)
    recorded.step(data[1][0] * torch.nan, data[1][1])
    recorded.step(*data[2])
    with pytest.raises(altmin.Diverged, match=r"the objective of step 3 of the last 4 \(from it on none was taken\)"):
        getattr(recorded, ask)()
    same(ordinary.model, recorded.model, 1e-8)
    steps(data[2:], ordinary.step, recorded.step)
    same(ordinary.model, recorded.model, 1e-8)
    assert recorded.penalty.value == pytest.approx(ordinary.penalty.value)  # type: ignore[attr-defined]


def test_nobody_waits_longer_than_256_steps_to_hear_of_it():
    recorded = Recorded(build("mlp", "am-adam"), fuse=False)
    data = list(batches("mlp", CHECK_EVERY))
    recorded.step(data[0][0] / 0, data[0][1])
    with pytest.raises(altmin.Diverged, match=rf"step 1 of the last {CHECK_EVERY}"):
        [recorded.step(x, y) for x, y in data[1:]]
    assert CHECK_EVERY == 256


@pytest.mark.parametrize("method", ["am-adam", "am-mem", "am-mem-fitted", "adam"])
def test_training_with_a_schedule_and_a_smaller_last_batch(method):
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
    same(runs[0][0], runs[1][0], 1e-6)  # rates of a cosine are rounded to float32
    assert runs[0][1] == pytest.approx(runs[1][1], rel=1e-6)


def test_replays_never_wait_for_the_device(device):
    if device == "cpu":
        pytest.skip("a CPU does not make itself wait")
    for name in ("am-adam", "am-mem", "am-mem-fitted", "adam"):
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
    own = copy.deepcopy(model)
    ordinary = Backprop(own, torch.optim.Adam(own.parameters(), 2**-7))
    data = list(batches("mlp", 6))
    recorded = Recorded(plain, *data[0], fuse=False)
    steps(data, ordinary.step, recorded.step)
    same(own, model, 1e-5)  # it counts in float32


@pytest.mark.parametrize("method", ["am-adam", "am-mem", "am-mem-fitted"])
def test_a_state_is_loaded_at_any_time(method):
    ordinary, recorded = build("deep", method), Recorded(build("deep", method), fuse=False)
    data = list(batches("deep", 8))
    steps(data[:4], ordinary.step, recorded.step)
    kept, weights = copy.deepcopy(recorded.state_dict()), copy.deepcopy(recorded.model.state_dict())
    for x, y in data[:4]:
        recorded.step(x, y)
    recorded.model.load_state_dict(weights)
    recorded.load_state_dict(kept)
    steps(data[4:], ordinary.step, recorded.step)
    same(ordinary.model, recorded.model, 1e-8)
    assert recorded.penalty.value == pytest.approx(ordinary.penalty.value)  # type: ignore[attr-defined]


def test_a_model_that_was_moved_elsewhere_is_noticed():
    recorded = Recorded(build("deep", "am-adam"), *next(batches("deep", 1)), fuse=False)
    recorded.method.model.float().double()
    with pytest.raises(ValueError, match=r"no longer lie.*make a new Recorded"):
        recorded.step(*next(batches("deep", 1)))


def test_two_of_one_method_write_to_the_same_weights():
    ordinary, method = build("deep", "am-adam"), build("deep", "am-adam")
    data = list(batches("deep", 6))
    pair = [Recorded(method, *data[0], fuse=False) for _ in range(2)]
    for i, (x, y) in enumerate(data):
        ordinary.step(x, y)
        pair[i % 2].step(x, y)
        pair[i % 2].synchronize()
    same(ordinary.model, method.model, 1e-8)
    assert method.penalty.value == pytest.approx(ordinary.penalty.value)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "method, net, options, reason",
    [
        ("adam", nn.Linear(7, 3), {}, "steps of AltMin and of ensembles are recorded there, not those of Backprop"),
        ("am-adam", altmin.models.mlp(7, (5,), 3), {"fuse": False}, "by compiling it, which fuse=False forbids"),
        ("am-adam", altmin.models.mlp(7, [5] * 64, 3), {}, "for at most 64 blocks, and the model has 65"),
    ],
)
def test_on_a_cpu_recording_is_compiling(method, net, options, reason, monkeypatch):
    monkeypatch.undo()
    made = altmin.methods.create(method, nn.Sequential(net) if isinstance(net, nn.Linear) else net)
    with pytest.raises(ValueError, match=rf"the model is on a CPU; .*{reason}.*; use the method as it is, or move"):
        Recorded(made, torch.zeros(4, 7), torch.zeros(4, dtype=torch.int64), **options)


def test_on_a_cpu_recording_needs_a_compiler(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(ValueError, match=r"needs a C\+\+ compiler"):
        Recorded(altmin.methods.create("am-adam", altmin.models.mlp(7, (5,), 3)))


# -- ensembles --------------------------------------------------------------------------------------------------------


def ensemble(net: str, method: str, rates=(2**-10, 2**-7, 2**-5), **options) -> altmin.Ensemble:
    made = []
    for seed, lr in enumerate(rates):
        torch.manual_seed(seed)
        model = NETS[net][0]().to(place, F64)
        made.append(altmin.methods.create(method, model, lr=lr, **options))
    return altmin.Ensemble(made)


@pytest.mark.parametrize(
    "net, method",
    [
        ("mlp", "am-adam"),
        ("deep", "am-sgd"),
        ("lenet5", "am-adam"),
        ("mlp", "adam"),
        ("mlp", "am-mem-fitted"),
        ("lenet5", "am-mem-fitted"),
        ("resnet18", "am-adam"),
        ("gpt", "am-adam"),
    ],
)
def test_a_recorded_ensemble_is_the_ensemble(net, method):
    ordinary, other = ensemble(net, method), ensemble(net, method)
    data = list(batches(net, 6))
    recorded = Recorded(other, *data[0])
    for x, y in data:
        expected = ordinary.step(x, y).loss
        torch.testing.assert_close(recorded.step(x, y).loss, expected, rtol=1e-8, atol=1e-10)
    same(ordinary.model, recorded.model, 1e-8)
    assert len(recorded) == 3
    assert bool(recorded)


@pytest.mark.parametrize("method", ["am-adam", "am-mem", "am-mem-fitted"])
def test_a_member_of_a_recorded_ensemble_that_diverges_takes_no_further_part(method):
    ordinary, recorded = ensemble("mlp", method), Recorded(ensemble("mlp", method), fuse=False)
    for each in (ordinary, recorded.method):
        with torch.no_grad():
            next(each.member(1).parameters()).fill_(torch.inf)
    steps(batches("mlp", 3), ordinary.step, recorded.step)
    assert recorded.diverged == ordinary.diverged == {1: 1}
    same(ordinary.member(2), recorded.member(2), 1e-8)


def test_a_batch_for_each_member_is_told_from_one_for_all():
    """Targets that are numbers can be either: what the step was told is captured."""
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
    same(ordinary.model, recorded.model, 1e-8)


def test_recorded_inference_that_diverges_changes_nothing_from_then_on():
    """The step that is not finite, and those after it, until the check that tells."""
    method = build("mlp", "predictive-coding", inference_rate=0.1)
    (x, y), *_ = batches("mlp", 1)
    recorded = Recorded(method, x, y, fuse=False)
    recorded.step(x, y)
    before = [p.detach().clone() for p in recorded.model.parameters()]
    recorded.step(x * float("inf"), y)
    recorded.step(x, y)
    with pytest.raises(altmin.Diverged, match=r"step 1 of the last 2 \(from it on none was taken\)"):
        recorded.synchronize()
    for p, old in zip(method.model.parameters(), before, strict=True):
        assert torch.equal(p, old)
    recorded.step(x, y)
    recorded.synchronize()
    assert not torch.equal(next(iter(method.model.parameters())), before[0])
