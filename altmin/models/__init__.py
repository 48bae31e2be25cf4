"""The paper's architectures, residual nets and a transformer as `nn.Sequential`s; `create` makes one by its name."""

from altmin.models.convolutional import binary_cnn, lenet5
from altmin.models.freeze import freeze_first, freeze_hidden
from altmin.models.fully_connected import autoencoder, binary_mlp, mlp, residual_mlp
from altmin.models.gpt import gpt, sample
from altmin.models.names import create
from altmin.models.recurrent import elman, gru, lstm, min_gru, pad
from altmin.models.resnet import resnet18

__all__ = [
    "autoencoder",
    "binary_cnn",
    "binary_mlp",
    "create",
    "elman",
    "freeze_first",
    "freeze_hidden",
    "gpt",
    "gru",
    "lenet5",
    "lstm",
    "min_gru",
    "mlp",
    "pad",
    "residual_mlp",
    "resnet18",
    "sample",
]
