"""Backprop compiled by torch takes the same steps; what cannot be compiled is refused in one sentence."""

import pytest
import torch
from torch import Tensor, nn

from altmin import methods
from altmin.methods.backprop import Backprop
from altmin.runners import compiled as compiling


@pytest.mark.parametrize("backend", ["traced", pytest.param("inductor", marks=pytest.mark.slow)])
def test_compiled_backprop_takes_the_same_steps(backend: str, request: pytest.FixtureRequest) -> None:
    try:
        compiling.check(torch.device("cpu"))
    except ValueError as reason:
        pytest.skip(str(reason))
    if backend == "traced":
        request.getfixturevalue(backend)
    torch.manual_seed(0)
    x, y = torch.randn(6, 5), torch.tensor([0, 1, 2, 0, 1, 2])
    plain, other = (methods.create("adam", _net(), lr=0.1) for _ in range(2))
    assert isinstance(other, Backprop)
    fast = compiling.compiled(other)
    for _ in range(3):
        torch.testing.assert_close(fast.step(x, y).loss, plain.step(x, y).loss)
    torch.testing.assert_close([*plain.model.parameters()], [*fast.model.parameters()])
    assert fast.state_dict()["optimizer"]["state"][0]["step"] == 3


def test_only_backprop_is_compiled_and_only_with_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TypeError, match="only backprop is compiled, such as the methods adam and sgd, not AltMin"):
        compiling.compiled(methods.create("am-adam", _net()))  # type: ignore[arg-type]
    monkeypatch.setattr(compiling.shutil, "which", lambda name: None)
    with pytest.raises(ValueError, match=r"needs a C\+\+ compiler, and no g\+\+ or clang\+\+ is here"):
        compiling.compiled(methods.create("adam", _net()))  # type: ignore[arg-type]
    monkeypatch.setattr(compiling, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match="needs the package triton"):
        compiling.check(torch.device("cuda"))


def test_what_torch_cannot_compile_is_told_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._dynamo.exc import TorchDynamoException

    def fail(x: Tensor, y: Tensor) -> Tensor:
        raise TorchDynamoException("InvalidCxxCompiler: none works\n\nSet TORCHDYNAMO_VERBOSE=1")

    method = compiling.Compiled(methods.create("adam", _net(), fused=True))  # type: ignore[arg-type]
    monkeypatch.setattr(method, "_loss", fail)
    expected = "^torch.compile cannot compile this step: InvalidCxxCompiler: none works; run it as it is$"
    with pytest.raises(ValueError, match=expected):
        method.step(torch.randn(2, 5), torch.tensor([0, 1]))


def _net() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3))
