"""LeNet-5 on Fashion-MNIST (appendix)."""

from _families import lenet

FIGURE = lenet("fashion", "fashion-mnist")
