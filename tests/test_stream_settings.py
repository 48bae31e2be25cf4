"""Methods for streams: which there are, and how their options are checked."""

import pytest
import torch
from torch import nn

pytest.importorskip("river")
import altmin
from altmin.stream import settings


@pytest.mark.parametrize("name", sorted(settings.DEFAULTS))
def test_a_network_has_the_widths_and_the_seed_that_were_given(name: str) -> None:
    before = torch.random.get_rng_state()
    first, second, other = (
        settings.build(name, 4, (5, 3), 2, nn.CrossEntropyLoss(), 0.07, None, seed).model for seed in (1, 1, 2)
    )
    assert torch.equal(torch.random.get_rng_state(), before)  # the user's random numbers stay
    assert [tuple(p.shape) for p in first.parameters()] == [(5, 4), (5,), (3, 5), (3,), (2, 3), (2,)]
    assert all(torch.equal(p, q) for p, q in zip(first.parameters(), second.parameters(), strict=True))
    assert not torch.equal(first[1].weight, other[1].weight)
    assert {p.dtype for p in first.parameters()} == {torch.float64}


def test_what_is_given_replaces_the_default() -> None:
    made = settings.build("am-mem", 4, (5,), 2, nn.CrossEntropyLoss(), 0.07, {"rate": 12.0}, 0)
    assert (made.weights.rate, made.weights.forget) == (12.0, settings.DEFAULTS["am-mem"]["forget"])
    assert made.optimizer.param_groups[0]["lr"] == 0.07


def test_options_are_not_used_up() -> None:
    options = {"penalty": altmin.Penalty(3.0)}
    for _ in range(2):
        assert settings.build("am-adam", 4, (5,), 2, nn.CrossEntropyLoss(), None, options, 0).penalty.start == 3.0
    assert not options["penalty"].claimed


def test_unknown_methods_and_options_are_refused() -> None:
    with pytest.raises(ValueError, match=r"unknown method for a stream 'am-adm'; did you mean 'am-adam'\?"):
        settings.check("am-adm", None, None)
    with pytest.raises(ValueError, match=r"unknown option of method 'am-mem', 'rates'; did you mean 'rate'\?"):
        settings.check("am-mem", None, {"rates": 1.0})
    with pytest.raises(ValueError, match="unknown option of method 'adam', 'lr'"):
        settings.check("adam", None, {"lr": 1.0})  # it has a parameter of its own
    with pytest.raises(ValueError, match="lr of method 'adam' must be a finite number of at least 0, given -1"):
        settings.check("adam", -1.0, None)
    with pytest.raises(TypeError, match="options are a dict"):
        settings.check("adam", None, "fused")  # type: ignore[arg-type]


def test_the_squared_error_has_a_rate_of_its_own() -> None:
    for loss, rate in ((nn.CrossEntropyLoss(), 20.0), (nn.MSELoss(), settings.REGRESSION["am-mem"]["rate"])):
        assert settings.build("am-mem", 4, (5,), 2, loss, None, None, 0).weights.rate == rate
