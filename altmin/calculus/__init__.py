"""The local calculus of modules: one file for each kind of module, `base` first, and the table of modules and their
maps."""

from torch import fx, nn

from altmin.calculus.base import Map, Params, Saved, Weighted
from altmin.calculus.discrete import Discrete, Estimated, PartlyDiscrete, Quantised, StandIn
from altmin.calculus.elementwise import Elementwise, Gelu, ReLU, Sigmoid, Silu, Tanh
from altmin.calculus.gated import GatedRecurrence
from altmin.calculus.linear import Affine, AveragePool2d, Convolution, Dropout, Linear, LinearModule, Reshape, Scaling
from altmin.calculus.normalisation import BatchNorm, LayerNorm, Normalisation
from altmin.calculus.other import AnyModule
from altmin.calculus.pooling import MaxPool, SeparatePool, windows_are_separate
from altmin.calculus.recurrent import LastOfEach, Recurrence, Steps, StepwiseLinear
from altmin.calculus.residual import ResidualLayer
from altmin.layers import (
    Committed,
    GatedScan,
    Last,
    LastReal,
    LayerDropout,
    QuantisedConv2d,
    QuantisedLinear,
    Readout,
    Recurrent,
    RecurrentLayer,
    Residual,
    Scale,
    Sign,
    Staircase,
    StraightThrough,
    View,
)

CLOSED_FORMS: dict[type[nn.Module], type[Map]] = {
    nn.Linear: Linear,
    Residual: ResidualLayer,
    **dict.fromkeys((Recurrent, RecurrentLayer), Recurrence),
    Readout: StepwiseLinear,
    GatedScan: GatedRecurrence,
    Last: LinearModule,
    LastReal: LastOfEach,
    **dict.fromkeys((nn.Conv1d, nn.Conv2d, nn.Conv3d), Convolution),
    **dict.fromkeys((nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d), Convolution),
    **dict.fromkeys((nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d), BatchNorm),
    nn.LayerNorm: LayerNorm,
    **dict.fromkeys((nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, LayerDropout), Dropout),
    **dict.fromkeys((nn.Flatten, nn.Unflatten, View), Reshape),
    **dict.fromkeys((nn.AvgPool2d, nn.AdaptiveAvgPool2d), AveragePool2d),
    **dict.fromkeys((nn.AvgPool1d, nn.AvgPool3d, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool3d), LinearModule),
    **dict.fromkeys((nn.ZeroPad1d, nn.ZeroPad2d, nn.ZeroPad3d, nn.PixelShuffle, nn.ChannelShuffle), LinearModule),
    **dict.fromkeys((nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d), MaxPool),
    **dict.fromkeys((nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d), MaxPool),
    **dict.fromkeys((Sign, Staircase), Discrete),
    StraightThrough: Estimated,
    Committed: PartlyDiscrete,
    **dict.fromkeys((QuantisedLinear, QuantisedConv2d), Quantised),
    Scale: Scaling,
    nn.ReLU: ReLU,
    nn.Tanh: Tanh,
    nn.Sigmoid: Sigmoid,
    nn.GELU: Gelu,
    nn.SiLU: Silu,
    **dict.fromkeys((nn.LeakyReLU, nn.ELU, nn.SELU, nn.CELU, nn.Mish), Elementwise),
    **dict.fromkeys((nn.Softplus, nn.Softsign, nn.ReLU6, nn.Hardtanh, nn.Hardswish, nn.Hardsigmoid), Elementwise),
    **dict.fromkeys((nn.LogSigmoid, nn.Tanhshrink, nn.Softshrink, nn.Hardshrink, nn.Threshold), Elementwise),
}
"""The map of each module type; anything not listed goes through `AnyModule`. Users may add their own."""


def own_call(module: nn.Module) -> bool:
    """Return whether a module's call does more than its class's forward: hooks, its own `__call__` or forward."""
    overridden = type(module).__call__ is not nn.Module.__call__ and not isinstance(module, fx.GraphModule)
    return overridden or bool(module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module))


def map_of(module: nn.Module) -> Map:
    """Return the map of one module.

    >>> type(map_of(nn.Linear(2, 3))).__name__, type(map_of(nn.Softmax(1))).__name__
    ('Linear', 'AnyModule')
    """
    kind = AnyModule if own_call(module) else CLOSED_FORMS.get(type(module), AnyModule)
    if issubclass(kind, Weighted) and not kind.fits(module):
        kind = AnyModule
    if kind is Convolution and (module.padding_mode != "zeros" or module.padding == "same"):
        kind = AnyModule
    if kind is MaxPool and windows_are_separate(module):
        kind = SeparatePool
    return kind(module)
