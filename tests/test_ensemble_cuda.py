"""The same promises on a GPU, and that `advance` never makes the processor wait for it."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from ensembles import NETS, OPTIONS, agree, batches, build, part, spoil

from altmin import Ensemble
from altmin.training import fit, fit_ensemble

pytestmark = [pytest.mark.cuda, pytest.mark.filterwarnings("error:There is a performance drop")]


def made(name: str, net: str, options: Any = None) -> list[Any]:
    make = NETS[net][0]
    return build(name, lambda: make().double().cuda(), options or OPTIONS[name])


def moved(batch: Any) -> Any:
    return tuple(t.cuda() for t in batch)


@contextmanager
def without_waiting() -> Iterator[None]:
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("name", OPTIONS)
def test_an_ensemble_on_the_gpu_goes_where_separate_runs_on_the_cpu_go(name: str, net: str) -> None:
    alone, ensemble = build(name, net, OPTIONS[name]), Ensemble(made(name, net))
    for batch in batches(net, 3):
        for i, method in enumerate(alone):
            method.step(*part(batch, i))
        ensemble.step(*moved(batch))
    for method in alone:
        method.model.cuda()
    agree(alone, ensemble, 1e-6)


@pytest.mark.parametrize("own", [True, False], ids=["own data", "shared data"])
@pytest.mark.parametrize("net", ["mlp", "lenet5", "elman"])
@pytest.mark.parametrize("name", OPTIONS)
def test_advance_does_not_wait_for_the_gpu(name: str, net: str, own: bool) -> None:
    data = [moved(batch) for batch in batches(net, 5, own)]
    one, other = Ensemble(made(name, net)), Ensemble(made(name, net))
    other.advance(*data[0])  # constants are made on the first call
    one.step(*data[0])
    for batch in data[1:]:
        one.step(*batch)
        with without_waiting():
            other.advance(*batch)
    torch.testing.assert_close([*one.model.parameters()], [*other.model.parameters()], rtol=0, atol=1e-10)


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", OPTIONS)
def test_step_waits_for_the_gpu_once(name: str) -> None:
    first, second = (moved(batch) for batch in batches("mlp", 2))
    ensemble = Ensemble(made(name, "mlp"))
    ensemble.step(*first)
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            ensemble.step(*second)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert len([w for w in seen if "synchroniz" in str(w.message)]) == 1


def test_a_member_that_diverges_is_masked_without_waiting() -> None:
    options, data = OPTIONS["am-adam"], batches("mlp", 6)
    alone = build("am-adam", "mlp", options)
    ensemble = Ensemble(made("am-adam", "mlp", options))
    for n, batch in enumerate(data):
        if n == 2:
            spoil(ensemble.member(1))
        for i in (0, 2):
            alone[i].step(*part(batch, i))
        if n:
            given = moved(batch)
            with without_waiting():
                ensemble.advance(*given)
        else:
            ensemble.advance(*moved(batch))
    assert ensemble.diverged == {1: 3}
    for i in (0, 2):
        alone[i].model.cuda()
    agree(alone, ensemble, 1e-8, members=(0, 2))


def test_a_cuda_graph_replays_advance() -> None:
    data = [moved(batch) for batch in batches("mlp", 8)]
    one, other = Ensemble(made("am-adam", "mlp")), Ensemble(made("am-adam", "mlp"))
    x, y = (t.clone() for t in data[0])
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for batch in data[:3]:
            one.advance(*batch)
            other.advance(*batch)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = other.advance(x, y)
    for batch in data[3:]:
        x.copy_(batch[0])
        y.copy_(batch[1])
        graph.replay()
        torch.testing.assert_close(loss, one.advance(*batch), rtol=0, atol=1e-10)
    torch.testing.assert_close([*one.model.parameters()], [*other.model.parameters()], rtol=0, atol=1e-10)
    assert other.steps == 8


def test_training_ensemble_on_the_gpu_gives_the_histories_of_fit() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(103, 5, generator=generator, dtype=torch.float64)
    train = x, x[:, :3].argmax(1)
    found = fit_ensemble(Ensemble(made("am-adam", "mlp")), train, train, epochs=2, batch_size=20)
    for seed, (history, method) in enumerate(zip(found, made("am-adam", "mlp"), strict=True)):
        expected = fit(method, train, train, epochs=2, batch_size=20, seed=seed)
        for a, b in zip(history.epochs, expected.epochs, strict=True):
            assert a["train_loss"] == pytest.approx(b["train_loss"], abs=1e-6)
            assert a["test_accuracy"] == pytest.approx(b["test_accuracy"], abs=0.02)


def test_a_method_from_an_ensemble_on_the_gpu_goes_on_alone() -> None:
    for name in OPTIONS:
        alone, ensemble = made(name, "mlp"), Ensemble(made(name, "mlp"))
        for batch in batches("mlp", 3):
            for i, method in enumerate(alone):
                method.step(*part(moved(batch), i))
            ensemble.step(*moved(batch))
        left = ensemble.methods
        for batch in batches("mlp", 5)[3:]:
            for i in range(3):
                alone[i].step(*part(moved(batch), i))
                left[i].step(*part(moved(batch), i))
        agree(alone, ensemble, 1e-6)
