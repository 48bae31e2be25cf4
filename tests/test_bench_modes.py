"""A mode is applied to a method, or says why it cannot be."""

import pytest
import torch

from altmin import methods, models
from altmin.paper.bench import modes
from altmin.runners.compiled import Compiled


def test_a_mode_with_a_plus_applies_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(modes.MODES, "compile", lambda method: f"compiled {method}")
    monkeypatch.setitem(modes.MODES, "graph", lambda method: f"recorded {method}")
    assert modes.apply("compile+graph", "adam") == "recorded compiled adam"  # type: ignore[arg-type, comparison-overlap]
    assert modes.apply("eager", "adam") == "adam"  # type: ignore[arg-type, comparison-overlap]


def test_only_backprop_is_compiled() -> None:
    net = models.mlp(4, (3,), 2)
    assert isinstance(modes.apply("compile", methods.create("adam", net)), Compiled)
    with pytest.raises(TypeError, match="only backprop is compiled"):
        modes.apply("compile", methods.create("am-adam", net))


@pytest.mark.parametrize("mode", ["graph", "compile+graph"])
def test_a_graph_needs_a_gpu(mode: str) -> None:
    with pytest.raises(ValueError, match="records CUDA graphs, which --device cpu does not have"):
        modes.check(mode, torch.device("cpu"))
    with pytest.raises(ValueError, match=r"a step is captured on a CUDA device"):
        modes.apply("graph", methods.create("am-adam", models.mlp(4, (3,), 2)))


def test_an_unknown_mode_is_refused_with_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"unknown mode 'grph'; did you mean 'graph'\?"):
        modes.check("eager+grph", torch.device("cpu"))
