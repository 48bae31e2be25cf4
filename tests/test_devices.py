"""A device that a machine lacks is refused in one sentence, wherever its name is given, and nothing is changed."""

from functools import partial

import numpy as np
import pytest
import torch
from commands import said
from torch import nn

from altmin.common.devices import usable

X, Y = np.ones((20, 3), np.float32), np.arange(20) % 2
LACKING = "'cuda:99', which torch cannot use here: .*; give 'cpu'$"


@pytest.mark.parametrize("given", ["cpu", torch.device("cpu"), "cpu:0"])
def test_a_device_that_is_there_is_given_back(given: str | torch.device) -> None:
    assert usable("device", given) == torch.device(given)


@pytest.mark.parametrize("given", ["abacus", "cuda:x", "", None, [], "cpu:²", "cuda:" + "9" * 30])
def test_what_names_no_device_is_refused(given: object) -> None:
    with pytest.raises(ValueError, match=r'^device of a net is "cpu", "cuda" or the like, given '):
        usable("device of a net", given)


@pytest.mark.parametrize("given", ["cuda:99", torch.device("cuda", 99)])
def test_one_that_this_machine_lacks_is_refused(given: str | torch.device) -> None:
    with pytest.raises(ValueError, match="^device of a net is " + LACKING):
        usable("device of a net", given)


def test_estimators_refuse_it_and_keep_what_they_have_learnt() -> None:
    pytest.importorskip("sklearn")
    from altmin.sklearn import AltMinClassifier

    net = AltMinClassifier((4,), epochs=1).fit(X, Y)
    before = net.predict_proba(X)
    new = AltMinClassifier((4,), device="cuda:99")
    for call in (net.set_params(device="cuda:99").fit, new.fit, partial(new.partial_fit, classes=[0, 1])):
        with pytest.raises(ValueError, match="^device of AltMinClassifier is " + LACKING):
            call(X, Y)
    assert np.array_equal(net.predict_proba(X), before)


def test_nets_of_skorch_refuse_it() -> None:
    pytest.importorskip("skorch")
    from altmin.integrations.skorch import AltMinNetClassifier

    with pytest.raises(ValueError, match="^device of AltMinNetClassifier is " + LACKING):
        AltMinNetClassifier(nn.Linear(3, 2), device="cuda:99").fit(X, Y)


@pytest.mark.parametrize("device", ["cuda:²", "cuda:99", "cuda:x", "cpu:" + "9" * 30])
@pytest.mark.parametrize("command", ["train", "compare", "doctor mlp-1x4"])
def test_commands_refuse_it_in_a_line(command: str, device: str) -> None:
    code, _, error = said(*command.split(), "--device", device)
    assert code == 2
    assert error.startswith("altmin: ")
    assert error.count("\n") == 1
    assert device in error
    assert "int()" not in error
