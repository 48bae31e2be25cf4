"""Hugging Face's `Trainer` with a method: the method's own loop, its scheduler, its checkpoints, its evaluation."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from method_cases import problem
from torch import Tensor, nn
from trainer_cases import equal

import altmin

pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("accelerate", reason="accelerate, which Trainer needs, is not installed")
from transformers import TrainingArguments

from altmin.integrations.transformers import AltMinTrainer

pytestmark = pytest.mark.filterwarnings("ignore")
SIZE, EPOCHS = 10, 4
X, Y = problem(60)


class Net(nn.Module):
    """Numbers, of which a mask hides some."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, numbers: Tensor, mask: Tensor) -> Tensor:
        return self.last(torch.relu(self.first(numbers * mask)))


MASK = (torch.arange(60)[:, None] + torch.arange(4)) % 3 > 0
ROWS = [{"numbers": x, "mask": m, "labels": y} for x, m, y in zip(X, MASK, Y, strict=True)]


def create(name: str) -> Any:
    torch.manual_seed(0)
    growing = {"penalty": altmin.Penalty(increment=0.5, growth=1.5, maximum=None)} if name.startswith("am-") else {}
    return altmin.methods.create(name, Net(), **growing)


def arguments(folder: Path, **options: Any) -> TrainingArguments:
    given = {"num_train_epochs": EPOCHS, "per_device_train_batch_size": SIZE, "train_sampling_strategy": "sequential"}
    given |= {"max_grad_norm": 0, "report_to": "none", "disable_tqdm": True, "save_strategy": "no", "use_cpu": True}
    return TrainingArguments(str(folder), **(given | {"lr_scheduler_type": "constant"} | options))


def by_hand(name: str, rate: Any = None) -> Any:
    """The method in a loop of one's own. rate: the factor of the learning rate before a step."""
    method, t = create(name), 0
    first = [group.setdefault("initial_lr", group["lr"]) for group in method.optimizer.param_groups]  # as a scheduler
    for _ in range(EPOCHS):
        for at in torch.arange(60).split(SIZE):
            for group, lr in zip(method.optimizer.param_groups, first, strict=True):
                group["lr"] = lr * (1.0 if rate is None else rate(t))
            method.step({"numbers": X[at], "mask": MASK[at]}, Y[at])
            t += 1
        method.end_epoch()
    return method


def test_the_scheduler_moves_the_methods_rate(tmp_path: Path) -> None:
    method = create("am-adam")
    AltMinTrainer(method, arguments(tmp_path, lr_scheduler_type="linear"), train_dataset=ROWS).train()
    alone = by_hand("am-adam", rate=lambda t: 1 - t / (EPOCHS * 6))
    for a, b in zip(method.model.parameters(), alone.model.parameters(), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("name", ["am-mem", "am-adam", "adam"])
def test_whole_and_resumed_runs_are_the_methods_own_loop(name: str, tmp_path: Path) -> None:
    saved, whole, resumed, alone = arguments(tmp_path, save_strategy="epoch"), create(name), create(name), by_hand(name)
    trainer = AltMinTrainer(whole, saved, train_dataset=ROWS)
    trainer.train()
    assert trainer.state.global_step == EPOCHS * 6
    AltMinTrainer(resumed, saved, train_dataset=ROWS).train(resume_from_checkpoint=str(tmp_path / "checkpoint-12"))
    for method in (whole, resumed):
        assert equal(method.model.state_dict(), alone.model.state_dict())
        assert equal(method.state_dict(), alone.state_dict())


def test_evaluation_is_that_of_the_model(tmp_path: Path) -> None:
    method = create("am-adam")
    trainer = AltMinTrainer(method, arguments(tmp_path), train_dataset=ROWS, eval_dataset=ROWS)
    found = trainer.predict(ROWS)
    with torch.no_grad():
        output = method.model(X, MASK)
    torch.testing.assert_close(torch.from_numpy(found.predictions), output)
    assert (torch.from_numpy(found.label_ids) == Y).all()
    loss = nn.functional.cross_entropy(output, Y).item()
    assert trainer.evaluate()["eval_loss"] == pytest.approx(loss, abs=1e-5)


@pytest.mark.parametrize(
    "option", [{"max_grad_norm": 1.0}, {"gradient_accumulation_steps": 2}, {"bf16": True}, {"label_names": ["y"]}]
)
def test_what_needs_the_whole_nets_gradient_or_has_no_labels_is_refused(option: dict[str, Any], tmp_path: Path) -> None:
    method = create("am-adam")
    before = copy.deepcopy(method.model.state_dict())
    with pytest.raises(ValueError, match=next(iter(option)).replace("label_names", "y")):
        AltMinTrainer(method, arguments(tmp_path, **option), train_dataset=ROWS).train()
    assert equal(method.model.state_dict(), before)
