"""Models of timm and transformers are measured as they are, and a missing library is named."""

import importlib.util
import sys

import pytest
import torch

from reproduction.measurements import others
from reproduction.results import Setting

HERE = Setting(torch.device("cpu"))


@pytest.mark.parametrize(("library", "model"), [("timm", "lcnet_050"), ("transformers", "ViT")])
def test_missing_library_is_named_with_its_extra(library: str, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ModuleNotFoundError, match=rf'needs {library}, .*"\.\[others\]"'):
        others.created(others.case(library, model))
    assert "torchvision.ops.misc" not in sys.modules or "torchvision.version" in sys.modules


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("timm") is None, reason="timm is not installed")
def test_models_of_timm_train_in_blocks_with_gradients_of_autograd() -> None:
    for model in ("lcnet_050", "regnetx_002", "vit_tiny_patch16_224"):
        row = others.measure(others.case("timm", model), 0, HERE)
        assert row["blocks"] > 1
        assert row["difference"] < 1e-6
        assert all(row[name]["loss"] < row["first"] for name in others.METHODS)
