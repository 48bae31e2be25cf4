"""Hugging Face's `Trainer` with a method of altmin: its loop, schedulers, evaluation, callbacks and checkpoints."""

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.utils import _pytree as pytree

from altmin.common.optional import need
from altmin.integrations.optimizer import MethodOptimizer
from altmin.methods.protocol import Method

need("transformers", "examples", "altmin.integrations.transformers")
need("accelerate", "examples", "altmin.integrations.transformers")

from transformers import Trainer, TrainerCallback, TrainingArguments


class AltMinTrainer(Trainer):
    """Trains `method.model` by the method's own step.

    The model takes its inputs by name and returns one tensor; `labels` of a sample are the target of the method's loss.
    The learning rate is the method's, which the scheduler of `args` changes; `args.learning_rate` is not used. A
    checkpoint has the method's state as that of the optimizer. options: those of `Trainer`, but for the model and its
    optimizers.

    ValueError for what needs a gradient of the whole model or several processes: in `args`, max_grad_norm is 0,
    gradient_accumulation_steps is 1, and bf16 and fp16 are False.
    """

    def __init__(self, method: Method, args: TrainingArguments, **options: Any):
        _check(args)
        super().__init__(method.model, args, optimizers=(_StepTaken(method), None), **options)
        self.method, self.label_names = method, args.label_names or ["labels"]
        here = pytree.tree_map_only(Tensor, lambda t: t.to(args.device), method.state_dict())
        method.load_state_dict(here)
        self.add_callback(_EndEpoch(method))

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        """Take the method's step on one mini-batch and return the loss before it."""
        model.train()
        x, y = self._divided(self._prepare_inputs(inputs))
        loss: Tensor = self.method.step(x, y).loss
        return loss

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Return the method's loss, for evaluation; with `return_outputs` also the outputs as "logits"."""
        x, y = self._divided(inputs)
        output = model(**x)
        loss = self.method.loss(output, y)  # type: ignore[attr-defined]
        return (loss, {"logits": output}) if return_outputs else loss

    def _divided(self, inputs: Any) -> tuple[Any, Tensor]:
        name, *others = self.label_names
        if others or name not in inputs:
            raise ValueError(f"samples have one target, {self.label_names}, beside their inputs; given {list(inputs)}")
        return {key: value for key, value in inputs.items() if key != name}, inputs[name]


class _StepTaken(MethodOptimizer):
    """Optimizer whose step, which `Trainer` calls after `training_step`, does not train: that has been done."""

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        super().step(closure or (lambda: None))


class _EndEpoch(TrainerCallback):
    def __init__(self, method: Method):
        self.method = method

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.method.end_epoch()


def _check(args: TrainingArguments) -> None:
    required = {"max_grad_norm": 0, "gradient_accumulation_steps": 1, "bf16": False, "fp16": False, "world_size": 1}
    remedies = {"max_grad_norm": "; clip by the method, as LocalAdam(clip_norm=1.0)"}
    for name, wanted in required.items():
        if (value := getattr(args, name)) != wanted:
            remedy = remedies.get(name, "")
            raise ValueError(f"AltMinTrainer takes {name}={wanted}, given {value}{remedy}")
