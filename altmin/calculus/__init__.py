"""What one module does to a small change: one file for each kind of module, `base` first, and the table that says which
module gets which."""

from torch import nn

from altmin.calculus.affine import Affine, Convolution, Linear
from altmin.calculus.base import Map, Params, Saved
from altmin.calculus.discrete import Discrete, Estimated, StandIn
from altmin.calculus.elementwise import Elementwise, ReLU, Sigmoid, Tanh, gate
from altmin.calculus.linear import AveragePool2d, Dropout, LinearModule, Reshape
from altmin.calculus.normalisation import BatchNorm, LayerNorm, Normalisation
from altmin.calculus.numbers import Number, vectorised
from altmin.calculus.other import AnyModule
from altmin.calculus.pooling import MaxPool, SeparatePool, windows_are_separate
from altmin.calculus.recurrent import Recurrence, Steps, StepwiseLinear
from altmin.layers import Readout, Recurrent, Sign, Staircase, StraightThrough

CLOSED_FORMS: dict[type[nn.Module], type[Map]] = {
    nn.Linear: Linear,
    Recurrent: Recurrence,
    Readout: StepwiseLinear,
    **dict.fromkeys((nn.Conv1d, nn.Conv2d, nn.Conv3d), Convolution),
    **dict.fromkeys((nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d), Convolution),
    **dict.fromkeys((nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d), BatchNorm),
    nn.LayerNorm: LayerNorm,
    **dict.fromkeys((nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d), Dropout),
    **dict.fromkeys((nn.Flatten, nn.Unflatten), Reshape),
    **dict.fromkeys((nn.AvgPool2d, nn.AdaptiveAvgPool2d), AveragePool2d),
    **dict.fromkeys((nn.AvgPool1d, nn.AvgPool3d, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool3d), LinearModule),
    **dict.fromkeys((nn.ZeroPad1d, nn.ZeroPad2d, nn.ZeroPad3d, nn.PixelShuffle, nn.ChannelShuffle), LinearModule),
    **dict.fromkeys((nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d), MaxPool),
    **dict.fromkeys((nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d), MaxPool),
    **dict.fromkeys((Sign, Staircase), Discrete),
    StraightThrough: Estimated,
    nn.ReLU: ReLU,
    nn.Tanh: Tanh,
    nn.Sigmoid: Sigmoid,
    **dict.fromkeys((nn.LeakyReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish), Elementwise),
    **dict.fromkeys((nn.Softplus, nn.Softsign, nn.ReLU6, nn.Hardtanh, nn.Hardswish, nn.Hardsigmoid), Elementwise),
    **dict.fromkeys((nn.LogSigmoid, nn.Tanhshrink, nn.Softshrink, nn.Hardshrink, nn.Threshold), Elementwise),
}
"""Which map a module gets; anything not listed goes through `AnyModule`. Users may add their own."""

RANDOM = (nn.AlphaDropout, nn.FeatureAlphaDropout, nn.RReLU)


def map_of(module: nn.Module) -> Map:
    """The map of one module. TypeError for one that draws new numbers at each call.

    >>> type(map_of(nn.Linear(2, 3))).__name__, type(map_of(nn.Softmax(1))).__name__
    ('Linear', 'AnyModule')
    """
    if isinstance(module, RANDOM):
        raise TypeError(
            f"{type(module).__name__} draws new numbers at each call, so its changes cannot be followed; "
            "use nn.Dropout, whose mask is kept for the whole step"
        )
    kind = CLOSED_FORMS.get(type(module), AnyModule)
    if kind is Convolution and (module.padding_mode != "zeros" or module.padding == "same"):
        kind = AnyModule
    if kind is MaxPool and windows_are_separate(module):
        kind = SeparatePool
    return kind(module)
