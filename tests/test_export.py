"""A trained net leaves by torch.export and by ONNX with the outputs it has here, for any number of samples."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import altmin

pytestmark = pytest.mark.filterwarnings("ignore")
NETS = {
    "sign": (lambda: nn.Sequential(nn.Linear(4, 8), altmin.Sign(), nn.Linear(8, 3)), (4,)),
    "recurrent": (lambda: altmin.models.elman(6, length=5, inputs=2, outputs=3), (5, 2)),
}


def trained(name: str) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    if name == "estimator":
        sklearn = pytest.importorskip("altmin.sklearn")
        x = torch.randn(16, 4)
        x[::5, 1] = torch.nan
        estimator = sklearn.AltMinClassifier((8,), epochs=3, categorical="auto")
        return estimator.fit(x.numpy(), torch.arange(16) % 3).export().float(), x
    make, shape = NETS[name]
    model, x = make(), torch.randn(16, *shape)
    method = altmin.methods.create("am-adam", model)
    for _ in range(3):
        method.step(x, torch.arange(16) % 3)
    return model.eval(), x


@pytest.mark.parametrize("name", [*NETS, "estimator"])
def test_an_exported_net_gives_the_outputs_of_the_original(name: str, tmp_path: Path) -> None:
    for library in ("onnx", "onnxscript"):
        pytest.importorskip(library)
    onnxruntime = pytest.importorskip("onnxruntime")
    model, x = trained(name)
    with torch.no_grad():
        expected = model(x[:5])
    program = torch.export.export(model, (x,), dynamic_shapes=({0: torch.export.Dim("rows")},))
    torch.export.save(program, tmp_path / "net.pt2")
    assert torch.equal(torch.export.load(tmp_path / "net.pt2").module()(x[:5]), expected)
    torch.onnx.export(program, (x,), tmp_path / "net.onnx", dynamo=True, verbose=False)
    session = onnxruntime.InferenceSession(tmp_path / "net.onnx")
    (output,) = session.run(None, {session.get_inputs()[0].name: x[:5].numpy()})
    assert torch.allclose(torch.from_numpy(output), expected, atol=1e-5)
