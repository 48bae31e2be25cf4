"""A run that was stopped, by whatever, goes on to the very numbers of one that was not; and no other run does."""

import copy
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import method_cases
import pytest
import torch
from loop_cases import Pairs, Recorder, Stop, numbered, outcome, samples, stop_at
from torch import Tensor, nn
from torch.utils.data import DataLoader
from trainer_cases import equal

import altmin
from altmin import methods
from altmin.common.errors import Diverged
from altmin.training import checkpoint, fit
from altmin.training.resumed import method_settings
from altmin.training.samples import fingerprint

SETTINGS: dict[str, Any] = {
    "epochs": 3,
    "batch_size": 20,
    "seed": 2,
    "eval_batches": [2, 7],
    "schedule": "cosine",
}


def learner(
    name: str = "adam", seed: int = 0, width: int = 8, dtype: torch.dtype = torch.float32, **options: Any
) -> Any:
    """Dropout needs the global random state, batch norm has buffers."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(6, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.3), nn.Linear(width, 3))
    return methods.create(name, model.to(dtype), **options)


def run(method: Any, **more: Any) -> Any:
    return outcome(method, fit(method, **{"train": samples(90), "test": samples(40, 1), **SETTINGS, **more}))


def of_any(name: str, seed: int = 1) -> Any:
    """Rivals train fully connected nets only, and some have no rate that a schedule could move."""
    if name in method_cases.ANY_NET:
        return learner(name, seed)
    return methods.create(name, method_cases.net(name, 6, 8, 3, seed=seed))


@pytest.mark.parametrize("name", method_cases.NAMES)
@pytest.mark.parametrize("every", [None, 2])
def test_every_method_resumed_is_as_if_uninterrupted(name: str, every: int | None, tmp_path: Path) -> None:
    schedule = {} if "lr" in methods.options(name) else {"schedule": "constant"}
    expected = run(of_any(name), **schedule)
    kept = {"checkpoint": tmp_path / "run", "checkpoint_every": every, **schedule}
    with pytest.raises(Stop):
        run(of_any(name), **kept, callbacks=stop_at(3))
    with pytest.raises(Stop):
        run(of_any(name, seed=7), **kept, resume=True, callbacks=stop_at(8))
    assert run(of_any(name, seed=8), **kept, resume=True) == expected


def noisy(x: Tensor, generator: torch.Generator) -> Tensor:
    return x + torch.randn(x.shape, generator=generator)


@pytest.mark.parametrize("batch", [1, 5, 9, 14, 15])
@pytest.mark.parametrize(
    "more",
    [{}, {"augment": noisy}, {"schedule": "cosine/epoch", "warmup": 1}, {"schedule": "one-cycle"}],
    ids=" ".join,
)
def test_stopped_after_any_batch_it_ends_the_same(batch: int, more: dict[str, Any], tmp_path: Path) -> None:
    expected = run(learner(), **more)
    kept = {**more, "checkpoint": tmp_path / "run", "checkpoint_every": 1 + batch % 3}
    with pytest.raises(Stop):
        run(learner(), **kept, callbacks=stop_at(batch))
    torch.manual_seed(batch)
    assert run(learner(seed=1), **kept, resume=True) == expected


def test_a_callback_may_stop_a_run_inside_an_epoch_which_then_goes_on_from_there(tmp_path: Path) -> None:
    class StopAfterFive:
        def on_batch_end(self, progress: Any) -> bool:
            return bool(progress.batch == 7)

    kept = {"checkpoint": tmp_path / "run"}
    method = learner()
    run(method, **kept, callbacks=StopAfterFive())
    at = checkpoint.load(tmp_path / "run")["at"]
    assert (at["epoch"], at["batch"]) == (1, 2)
    assert run(method, **kept, resume=True) == run(learner())


def test_a_run_over_a_shuffling_dataloader_goes_on_from_the_end_of_an_epoch(tmp_path: Path) -> None:
    def loader() -> Any:
        return DataLoader(Pairs(*samples()), 20, shuffle=True)

    settings: dict[str, Any] = {"train": loader(), "batch_size": None, "eval_batches": []}
    whole, stopped = learner(), learner()
    torch.manual_seed(1)
    expected = run(whole, **settings)
    torch.manual_seed(1)
    kept = {**settings, "checkpoint": tmp_path / "run"}
    with pytest.raises(Stop):
        run(stopped, **kept, callbacks=stop_at(8))
    assert run(learner(seed=5), **kept, resume=True) == expected


def test_a_finished_run_resumes_to_its_result_and_may_be_prolonged_at_a_constant_rate(tmp_path: Path) -> None:
    constant = {"schedule": "constant"}
    expected = run(learner(), **constant, epochs=5)
    kept = {**constant, "checkpoint": tmp_path / "run"}
    done = run(learner(), **kept)
    assert run(learner(seed=1), **kept, resume=True, callbacks=stop_at(15)) == done
    assert run(learner(seed=2), **kept, epochs=5, resume=True) == expected
    assert json.loads(json.dumps(expected[1])) == expected[1]


def test_the_same_objects_can_go_on_after_an_interrupt(tmp_path: Path) -> None:
    method = learner()
    with pytest.raises(KeyboardInterrupt, match=r"stopped in epoch 2, batch 3 of 5; .*run"):
        run(method, checkpoint=tmp_path / "run", callbacks=stop_at(7, KeyboardInterrupt()))
    assert run(method, checkpoint=tmp_path / "run", resume=True) == run(learner())


class Spoiling(Recorder):
    """Its third step leaves NaN behind, which only the fourth's loss would show."""

    def step(self, x: Tensor, y: Tensor) -> Any:
        metrics = super().step(x, y)
        if len(self.seen) == 3:
            nn.init.constant_(self.model.get_parameter("bias"), math.nan)
        return metrics


def test_divergence_keeps_the_last_good_checkpoint_and_names_it(tmp_path: Path) -> None:
    kept: dict[str, Any] = {"epochs": 1, "batch_size": 4, "checkpoint": tmp_path / "run", "checkpoint_every": 1}
    with pytest.raises(Diverged, match=r"bias in epoch 1, batch 3 of 5 is not finite; .*; the last .*run$"):
        fit(Spoiling(), numbered(20), **kept)
    assert checkpoint.load(tmp_path / "run")["at"]["batch"] == 2


OTHERS: dict[str, tuple[Callable[[], dict[str, Any]], str]] = {
    "seed": (lambda: {"seed": 3}, "its seed is 2; here it is 3"),
    "batch_size": (lambda: {"batch_size": 10}, "batch_size"),
    "epochs": (lambda: {"epochs": 4}, "schedule"),
    "fewer epochs": (lambda: {"epochs": 1, "schedule": "constant", "eval_batches": [2]}, "its"),
    "eval_batches": (lambda: {"eval_batches": [2]}, "eval_batches"),
    "number of samples": (lambda: {"train": samples(89)}, "training data"),
    "samples": (lambda: {"train": (samples(90)[0] * 1.001, samples(90)[1])}, "training data"),
    "type": (lambda: {"train": (samples(90)[0], samples(90)[1].int())}, "training data"),
    "test": (lambda: {"test": samples(41, 1)}, "test data"),
    "augmentation": (lambda: {"augment": lambda x, generator: x}, "augmentation"),
    "callbacks": (lambda: {"callbacks": altmin.training.EMA(0.9)}, "callbacks"),
    "optimizer": (lambda: {"method": learner("sgd")}, "optimizer"),
    "rate": (lambda: {"method": learner(lr=0.5)}, "optimizer"),
}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("resumed") / "run"
    with pytest.raises(Stop):
        run(learner(), checkpoint=path, checkpoint_every=1, callbacks=stop_at(7))
    return path.read_bytes()


def refuses(method: Any, path: Path, match: str, **settings: Any) -> None:
    before = copy.deepcopy((method.model.state_dict(), method.state_dict(), torch.get_rng_state()))
    content = path.read_bytes()
    with pytest.raises(ValueError, match=match) as error:
        run(method, checkpoint=path, resume=True, **settings)
    assert "\n" not in str(error.value)
    assert equal((method.model.state_dict(), method.state_dict(), torch.get_rng_state()), before)
    assert path.read_bytes() == content


@pytest.mark.parametrize("other", OTHERS)
def test_a_checkpoint_of_another_run_is_refused_and_changes_nothing(other: str, file: bytes, tmp_path: Path) -> None:
    (tmp_path / "run").write_bytes(file)
    change = OTHERS[other][0]()
    refuses(change.pop("method", None) or learner(seed=1), tmp_path / "run", OTHERS[other][1], **change)


def test_a_part_that_does_not_load_is_refused_and_changes_nothing(file: bytes, tmp_path: Path) -> None:
    path = tmp_path / "run"
    path.write_bytes(file)
    state = checkpoint.load(path)
    for edit in (
        lambda s: s["parts"]["model"].update({"0.bias": torch.zeros(3)}),
        lambda s: s["parts"]["method"]["optimizer"]["state"][0].update(exp_avg=torch.zeros(1)),
        lambda s: s["parts"].pop("schedule"),
        lambda s: s["parts"].update(method=[]),
        lambda s: s["at"].update(epoch=4),
    ):
        wrong = copy.deepcopy(state)
        edit(wrong)
        checkpoint.save(path, wrong)
        method = learner(seed=5)
        method.step(*samples(20))
        refuses(method, path, "run")
    checkpoint.save(path, {"kind": "model"})
    refuses(learner(), path, "not the checkpoint of a run")


def test_an_earlier_runs_checkpoint_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("precious")
    with pytest.raises(ValueError, match="exists already"):
        run(learner(), checkpoint=tmp_path / "run")
    assert (tmp_path / "run").read_text() == "precious"
    with pytest.raises(FileNotFoundError):
        run(learner(), checkpoint=tmp_path / "other", resume=True)
    assert os.listdir(tmp_path) == ["run"]


# -- what tells one run from another ----------------------------------------------------------------------------------


def net(width: int = 8, dtype: torch.dtype = torch.float32) -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.Linear(width, 3)).to(dtype)


def frozen() -> nn.Sequential:
    model = net()
    model[0].bias.requires_grad_(False)
    return model


def of_tanh() -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


@pytest.mark.parametrize(
    "name, model, options, differ",
    [
        ("am-adam", net, {}, set()),
        *(
            ("am-adam", net, {option: value}, {"codes"})
            for option, value in (("share", 0.2), ("order", "weights-first"))
        ),
        ("am-adam", net, {"codes": "straight-through"}, {"codes"}),
        ("am-adam", net, {"penalty": 3.0}, {"penalty"}),
        ("am-adam", net, {"penalty": altmin.Penalty(growth=2.0)}, {"penalty"}),
        ("am-adam", net, {"loss": nn.CrossEntropyLoss(label_smoothing=0.1)}, {"loss"}),
        ("am-adam", net, {"loss": nn.functional.cross_entropy}, {"loss"}),
        ("am-adam", net, {"l1": 1e-4}, {"weights"}),
        ("am-adam-offline", net, {"lr": 1e-3}, {"method"}),
        ("am-adam", lambda: net(9), {}, {"model", "layers"}),
        ("am-adam", lambda: net(dtype=torch.float64), {}, {"model"}),
        ("am-adam", of_tanh, {}, {"layers"}),
        ("am-adam", frozen, {}, {"model"}),
    ],
)
def test_every_option_of_a_method_and_its_model_count(name: str, model: Any, options: Any, differ: set[str]) -> None:
    a, b = (
        method_settings(each) for each in (methods.create("am-adam", net()), methods.create(name, model(), **options))
    )
    assert {name for name in a | b if a.get(name) != b.get(name)} == differ


def test_precision_counts() -> None:
    method = methods.create("am-adam", net())
    plain = method_settings(method)
    rounded = method_settings(method, "bf16")
    assert {name for name, value in rounded.items() if value != plain[name]} == {"precision of products"}


def test_a_method_in_training_is_the_method_it_was() -> None:
    for name in methods.names():
        method = methods.create(name, method_cases.net(name, 6, 8, 3))
        before = method_settings(method)
        method.step(torch.randn(9, 6), torch.arange(9) % 3)
        method.end_epoch()
        assert method_settings(method) == before


@pytest.mark.parametrize("n", [1, 2, 64, 65, 1000])
def test_a_fingerprint_sees_the_first_and_the_last_sample_and_every_one_of_few(n: int) -> None:
    x, y = torch.randn(n, 3), torch.arange(n)
    expected = fingerprint((x, y))
    assert expected.startswith(f"{n} samples, float32 3 and int64, digest ")
    for i in {0, n - 1} if n > 64 else set(range(n)):
        for part in range(2):
            changed = [x.clone(), y.clone()]
            changed[part][i] += 1
            assert fingerprint((changed[0], changed[1])) != expected
    assert fingerprint((x.double(), y)) != expected
