"""skorch nets that train by a method of altmin: `optimizer` is the method's name, `optimizer__...` its options."""

from typing import Any

from torch import nn

from altmin.common.optional import need
from altmin.integrations.optimizer import MethodOptimizer
from altmin.methods.protocol import create

need("skorch", what="altmin.integrations.skorch")

from skorch import NeuralNet, NeuralNetClassifier, NeuralNetRegressor
from skorch.callbacks import GradientNormClipping
from skorch.dataset import unpack_data
from skorch.utils import to_tensor


class AltMinTraining(NeuralNet):
    """Base class of the two nets: the method in the place of the optimizer, and its step in that of backprop."""

    def __init__(self, module: Any, *args: Any, optimizer: str = "am-adam", lr: float | None = None, **kwargs: Any):
        super().__init__(module, *args, optimizer=optimizer, lr=lr, **kwargs)

    def initialize_optimizer(self, *_: Any) -> Any:
        """Create the method for `module_` and `criterion_`. lr: that of the net; None is the method's default."""
        if any(isinstance(callback, GradientNormClipping) for _, callback in self.callbacks_):
            raise ValueError("GradientNormClipping has no gradients to clip here; use a weight rule with clip_norm")
        options = {"loss": self.criterion_, **self.get_params_for("optimizer")}
        if self.lr is not None:
            options.setdefault("lr", self.lr)
        self.optimizer_ = MethodOptimizer(create(self.optimizer, self.module_, **options))
        return self

    def train_step(self, batch: Any, **fit_params: Any) -> dict[str, Any]:
        """Take a step. "y_pred" is computed, in evaluation mode, only if a callback scores training batches."""
        scored = any(getattr(callback, "on_train", False) for _, callback in self.callbacks_)
        y_pred = self.evaluation_step(batch) if scored else None
        self._set_training(True)
        x, y = (to_tensor(part, device=self.device) for part in unpack_data(batch))
        metrics = self.optimizer_.step(lambda: self.optimizer_.method.step(x, y))
        return {"loss": metrics.loss, "y_pred": y_pred}

    def run_single_epoch(self, iterator: Any, training: bool, *args: Any, **fit_params: Any) -> None:
        """Call the method's `end_epoch` after a pass over the training samples, before those of validation."""
        super().run_single_epoch(iterator, training, *args, **fit_params)
        if training:
            self.optimizer_.method.end_epoch()


class AltMinNetClassifier(AltMinTraining, NeuralNetClassifier):
    """skorch's NeuralNetClassifier, trained by a method of altmin. The module's outputs are logits.

    >>> net = AltMinNetClassifier(nn.Linear(2, 3), optimizer="am-sgd", lr=0.1, optimizer__momentum=0.5)
    """

    def __init__(self, module: Any, *args: Any, criterion: Any = nn.CrossEntropyLoss, **kwargs: Any):
        super().__init__(module, *args, criterion=criterion, **kwargs)


class AltMinNetRegressor(AltMinTraining, NeuralNetRegressor):
    """skorch's NeuralNetRegressor, trained by a method of altmin. Targets have the shape of the outputs."""

    def __init__(self, module: Any, *args: Any, criterion: Any = nn.MSELoss, **kwargs: Any):
        super().__init__(module, *args, criterion=criterion, **kwargs)
