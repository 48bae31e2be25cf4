"""LeNet-5 on Fashion-MNIST (appendix)."""

from reproduction.figures._families import lenet

FIGURE = lenet("fashion", "fashion-mnist", increment=1e-5)
