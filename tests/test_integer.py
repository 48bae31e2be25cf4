"""Nets in integers: packed bits, thresholds, files, and equality with the floating net."""

import pytest
import torch
from torch import nn

import altmin
from altmin.layers import Committed, QuantisedConv2d, QuantisedLinear
from altmin.training import checkpoint
from altmin.training.integer import IntegerNet, pack, unpack

ACTIVATIONS = {"sign": altmin.Sign, "4 levels": lambda: altmin.Staircase(4), "committed": Committed}
EACH = pytest.mark.parametrize("activation", ACTIVATIONS.values(), ids=ACTIVATIONS)
BITS = pytest.mark.parametrize("bits", [1, 2, 3, 4])


def trained(model: nn.Module, x: torch.Tensor) -> nn.Module:
    """With statistics and factors of batch norm that are those of no fresh net; some factors are negative, one is 0."""
    for m in model.modules():
        if isinstance(m, nn.BatchNorm1d | nn.BatchNorm2d):
            nn.init.normal_(m.weight)
            nn.init.normal_(m.bias)
            m.weight.data[0] = 0
    model.train()
    with torch.no_grad():
        for _ in range(10):
            model(x)
    return model


def mlp(activation, bits: int) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    x = torch.randn(700, 20)
    return trained(altmin.models.binary_mlp(20, (30, 31, 17), 5, activation, 0.1, batch_norm=True, bits=bits), x), x


@BITS
def test_packed_bits_are_those_of_the_integers(bits):
    torch.manual_seed(0)
    q = 2 * torch.randint(2**bits, (7, 3, 5)) - 2**bits + 1
    packed = pack(q, bits)
    text = "".join(format(int((each + 2**bits - 1) // 2), f"0{bits}b")[::-1] for each in q.flatten())
    expected = [int(text[i : i + 8][::-1], 2) for i in range(0, len(text), 8)]
    assert packed.dtype is torch.uint8
    assert packed.tolist() == expected
    assert torch.equal(unpack(packed, q.shape, bits), q.int())


@BITS
@EACH
def test_integers_predict_as_the_floating_net(activation, bits):
    model, x = mlp(activation, bits)
    net = IntegerNet(model)
    agreement = net.check(model, x)
    assert agreement.same
    assert agreement.samples == 700
    assert agreement.largest < 1e-5
    assert model.training, "the model is left as it was"
    with torch.no_grad():
        assert len(set(model.eval()(x).argmax(1).tolist())) > 1
        torch.testing.assert_close(net(x), model(x))


@EACH
@pytest.mark.parametrize("late", [False, True])
def test_convolutions_and_pooling_before_and_after_batch_norm(activation, late):
    torch.manual_seed(0)
    x = torch.randn(60, 1, 28, 28)
    model = altmin.models.binary_cnn(width=4, activation=activation, bits=2)
    if late:
        model[5], model[6] = model[6], model[5]
    model = trained(model, x)
    assert IntegerNet(model).check(model, x).same


def test_a_strided_convolution_without_batch_norm():
    torch.manual_seed(0)
    model = nn.Sequential(
        *(nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), altmin.Sign()),
        *(QuantisedConv2d(6, 5, 3, stride=2, padding=1, bits=3), altmin.Staircase(3)),
        *(nn.Flatten(), QuantisedLinear(5 * 5 * 5, 4)),
    )
    x = torch.randn(300, 1, 12, 12)
    assert IntegerNet(model).check(model, x).largest < 1e-5


def test_activations_between_the_first_and_the_last_are_integers():
    model, x = mlp(altmin.Sign, 1)
    net = IntegerNet(model)
    y = net.first(x).int()
    floating = model.eval()[:4](x)
    for layer, block in zip(net.layers, (model[4:9], model[9:13]), strict=True):
        y = layer(y)
        with torch.no_grad():
            floating = block(floating)
        assert y.dtype is torch.int32
        assert torch.equal(y.float(), floating)
    assert net.layers[0].packed.numel() == -(-30 * 31 // 8)
    assert net.nbytes == sum(-(-m * n // 8) + n + 4 * n for m, n in ((30, 31), (31, 17)))


def test_thresholds_are_the_least_sums_that_reach_a_level():
    model, _ = mlp(lambda: altmin.Staircase(4), 1)
    layer = IntegerNet(model).layers[0]
    linear, after = model.eval()[5], nn.Sequential(*model[6:8])
    with torch.no_grad():
        for total in range(-90, 91):
            z = total / 3 * linear.scale(linear.weight) + linear.bias
            level = ((after(z[None])[0] + 1) * 1.5).round()
            counted = (layer.signs * total >= layer.thresholds.T).sum(0)
            assert torch.equal(counted, level.long())


def test_check_tells_how_many_differ():
    model, x = mlp(altmin.Sign, 1)
    net = IntegerNet(model)
    net.layers[0].thresholds += 5
    agreement = net.check(model, x)
    with torch.no_grad():
        expected = int((net(x).argmax(1) != model.eval()(x).argmax(1)).sum())
    assert agreement.differing == expected > 0
    assert not agreement.same


def test_a_file_gives_the_same_net(tmp_path):
    model, x = mlp(lambda: altmin.Staircase(4), 2)
    net = IntegerNet(model)
    net.save(tmp_path / "net.safetensors")
    again = IntegerNet.load(tmp_path / "net.safetensors")
    assert torch.equal(again(x), net(x))
    assert again.check(model, x).same
    checkpoint.save(tmp_path / "other.safetensors", {"a": 1})
    with pytest.raises(ValueError, match="has written"):
        IntegerNet.load(tmp_path / "other.safetensors")


def test_the_net_does_not_change_with_the_model():
    model, x = mlp(altmin.Sign, 1)
    net = IntegerNet(model)
    before = net(x)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(1)
    assert torch.equal(net(x), before)


@pytest.mark.parametrize(
    "model, error, match",
    [
        (nn.Sequential(nn.Linear(2, 2)), ValueError, "has none"),
        (altmin.models.binary_mlp(2, (2, 2), 2, altmin.Sign), ValueError, "one QuantisedLinear"),
        (nn.Sequential(nn.Linear(2, 2), nn.Tanh(), altmin.Sign()), TypeError, "cannot contain Tanh"),
        (nn.Sequential(nn.BatchNorm1d(2, track_running_stats=False), altmin.Sign()), ValueError, "running statistics"),
        (
            nn.Sequential(altmin.Sign(), QuantisedConv2d(1, 1, 3), nn.MaxPool2d(2, padding=1), altmin.Sign()),
            ValueError,
            "max-pooling",
        ),
        (
            nn.Sequential(altmin.Sign(), QuantisedConv2d(1, 1, 3), nn.Flatten(), altmin.Sign()),
            ValueError,
            "reorder",
        ),
    ],
    ids=str,
)
def test_models_that_have_no_integer_form_are_refused(model, error, match):
    with pytest.raises(error, match=match):
        IntegerNet(model)
