"""skorch nets train as the method alone does, and work with clones, grid search, pickles and skorch's callbacks."""

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from method_cases import looped, problem
from torch import nn
from trainer_cases import equal

import altmin

pytest.importorskip("skorch")
from sklearn.base import clone
from skorch.callbacks import EpochScoring, GradientNormClipping, LRScheduler
from skorch.helper import predefined_split

from altmin.integrations.skorch import AltMinNetClassifier, AltMinNetRegressor

pytestmark = pytest.mark.filterwarnings("ignore")
TENSORS = problem(60)
X, Y = (part.numpy() for part in TENSORS)
SIZE, EPOCHS = 10, 3


def net(optimizer: str = "am-mem", seed: int = 0, **options: Any) -> AltMinNetClassifier:
    """A net that trains on all samples, in order."""
    torch.manual_seed(seed)
    sizes = {"module__inputs": 4, "module__hidden": (8,), "module__outputs": 3}
    given = {"max_epochs": EPOCHS, "batch_size": SIZE, "train_split": None, "verbose": 0, **sizes, **options}
    return AltMinNetClassifier(altmin.models.mlp, optimizer=optimizer, **given)


def by_hand(name: str, rate: Any = None, **options: Any) -> Any:
    torch.manual_seed(0)
    method = altmin.methods.create(name, altmin.models.mlp(4, (8,), 3), **options)
    return looped(method, list(zip(*(part.split(SIZE) for part in TENSORS), strict=True)), EPOCHS, rate)


@pytest.mark.parametrize("name", ["am-mem", "am-adam-offline", "adam"])
def test_fit_is_the_methods_own_loop(name: str) -> None:
    fitted = net(name).fit(X, Y)
    alone = by_hand(name)
    assert equal(fitted.module_.state_dict(), alone.model.state_dict())
    assert equal(fitted.optimizer_.state_dict(), alone.state_dict())


def test_options_reach_the_method_and_none_for_the_rate_is_the_methods_own() -> None:
    fitted = net("am-sgd", lr=0.03, optimizer__share=0.5, optimizer__momentum=0.0).fit(X, Y)
    assert equal(fitted.module_.state_dict(), by_hand("am-sgd", lr=0.03, share=0.5, momentum=0.0).model.state_dict())
    assert net("am-sgd").initialize().optimizer_.param_groups[0]["lr"] == 0.1
    with pytest.raises(ValueError, match="share"):
        net(optimizer__shere=0.5).initialize()


def test_an_offline_method_moves_its_weights_before_validation() -> None:
    data = torch.utils.data.TensorDataset(*TENSORS)
    fitted = net("am-adam-offline", max_epochs=1, train_split=predefined_split(data)).fit(X, Y)
    with torch.no_grad():
        after = nn.CrossEntropyLoss()(fitted.module_(TENSORS[0]), TENSORS[1])
    assert fitted.history[-1, "valid_loss"] == pytest.approx(float(after), rel=1e-5)


def test_a_callback_may_score_training_batches_by_predictions_before_each_step() -> None:
    scoring = EpochScoring("accuracy", name="train_acc", on_train=True, lower_is_better=False)
    fitted = net("am-adam", lr=0.0, callbacks=[scoring]).fit(X, Y)  # a rate of 0 leaves the net as it is
    assert fitted.history[-1, "train_acc"] == pytest.approx(float((fitted.predict(X) == Y).mean()))


def test_a_scheduler_of_skorch_moves_the_methods_rate() -> None:
    halving = LRScheduler(policy=torch.optim.lr_scheduler.ExponentialLR, gamma=0.5)
    fitted = net("am-adam", callbacks=[halving]).fit(X, Y)
    expected = by_hand("am-adam", lambda epoch: 1e-3 * 0.5**epoch)
    assert equal(fitted.module_.state_dict(), expected.model.state_dict())


def test_clones_fit_alike_and_a_pickled_net_goes_on_as_the_original() -> None:
    first = net().fit(X, Y)
    second = clone(first)
    torch.manual_seed(0)
    second.fit(X, Y)
    assert equal(first.module_.state_dict(), second.module_.state_dict())
    third = pickle.loads(pickle.dumps(first))
    assert third.optimizer_.method.model is third.module_
    for each in (first, third):
        each.partial_fit(X, Y)
    assert equal(first.module_.state_dict(), third.module_.state_dict())
    assert equal(first.optimizer_.state_dict(), third.optimizer_.state_dict())


def test_a_regressor_fits_a_line() -> None:
    x = np.linspace(-1, 1, 40, dtype=np.float32)[:, None]
    torch.manual_seed(0)
    line = AltMinNetRegressor(nn.Linear(1, 1), lr=0.1, max_epochs=100, verbose=0, train_split=None)
    assert np.allclose(line.fit(x, 2 * x + 1).predict(x), 2 * x + 1, atol=1e-2)


def test_clipping_of_gradients_that_are_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match="clip_norm"):
        net(callbacks=[GradientNormClipping(1.0)]).fit(X, Y)
