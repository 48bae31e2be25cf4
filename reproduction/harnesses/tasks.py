"""Split MNIST in one pass, by Avalanche."""

import warnings
from typing import Any

import torch
from torch import nn

from altmin import continual, methods, models
from reproduction.case import Case
from reproduction.harnesses.packages import harness
from reproduction.results import Row, Setting

REPLAY: Row = {"lr": 3e-3, "mem_size": 2000}
LEARNERS: dict[str, tuple[str, Row]] = {
    "altmin.continual, learner": ("learner", {}),
    "altmin.continual, remembering": ("remembering", {"rate": 5.0, "width": 700}),
    "altmin.continual, ridge": ("ridge", {}),
    "Naive": ("Naive", {"lr": 3e-5}),
    "Naive, CoActivation for Adam": ("Naive", {"lr": 3e-4, "optimizer": "coactivation"}),
    "EWC": ("EWC", {"lr": 1e-4, "ewc_lambda": 1e4}),
    "Replay, 200 samples": ("Replay", {**REPLAY, "mem_size": 200}),
    "Replay": ("Replay", REPLAY),
    "Replay, batches of 20": ("Replay", {**REPLAY, "train_mb_size": 20}),
    "DER": ("DER", {**REPLAY, "batch_size_mem": 200}),
    "ER-ACE": ("ER_ACE", {**REPLAY, "batch_size_mem": 200}),
}
"""Ours, and Avalanche's with Adam; rates and strengths of the figure `continual`, chosen there on validation data."""


def in_tasks(case: Case, seed: int, setting: Setting) -> Row:
    """Accuracy on all test samples after the last of five tasks, and forgetting, as Avalanche measures them."""
    strategies, benchmarks = harness("avalanche.training.supervised"), harness("avalanche.benchmarks")
    plugins, metrics = harness("avalanche.training.plugins"), harness("avalanche.evaluation.metrics")

    class Learning(strategies.Naive):  # type: ignore[name-defined]
        """Avalanche's loop around the steps of a learner."""

        def training_epoch(self, **options: Any) -> None:
            for batch in self.dataloader:
                self.mbatch = batch
                self._unpack_minibatch()
                learner.step(self.mb_x, self.mb_y)
            learner.end_epoch()
            self.model = learner.model

        # the learner takes its own steps, on a model that may be another one after them
        def model_adaptation(self, model: Any = None) -> Any:
            return self.model

        def make_optimizer(self, **options: Any) -> None:
            pass

    torch.manual_seed(seed)
    given = {name: value for name, value in case.options.items() if name != "learner"}
    kind, _ = LEARNERS[case.options["learner"]]
    model = models.mlp(784, (1180,) if kind == "ridge" else (100, 100), 10)
    strategy, options = getattr(strategies, kind, Learning), {"train_mb_size": 200, **given}
    if strategy is Learning:
        learner = continual.learner(model) if kind == "learner" else continual.create(kind, model, **given)
        options = {"train_mb_size": 200}
    data = []
    for part in ("train", "test"):
        x, y = setting.samples("mnist", part, case["limit"])
        samples: Any = torch.utils.data.TensorDataset(x.flatten(1), y)
        samples.targets = y.tolist()
        data.append(harness("avalanche.benchmarks.utils").as_classification_dataset(samples))
    tasks = benchmarks.nc_benchmark(*data, 5, task_labels=False, fixed_class_order=list(range(10)))
    measures = metrics.accuracy_metrics(stream=True), metrics.forgetting_metrics(experience=True, stream=True)
    options |= {"evaluator": plugins.EvaluationPlugin(*measures, loggers=[]), "eval_mb_size": 1000, "train_epochs": 1}
    optimizer = methods.create(options.pop("optimizer", "adam"), model, lr=options.pop("lr", 0.0)).optimizer
    trained = strategy(model=model, optimizer=optimizer, criterion=nn.CrossEntropyLoss(), **options)
    with warnings.catch_warnings(action="ignore"):  # it calls what it has deprecated
        for task in tasks.train_stream:
            trained.train(task)
            found = trained.eval(tasks.test_stream)
    accuracy, forgetting = (next(v for k, v in found.items() if k.startswith(m)) for m in ("Top1_Acc_S", "StreamF"))
    return {"accuracy": accuracy, "forgetting": forgetting}
