"""LeNet-5 on Fashion-MNIST (appendix)."""

from altmin.paper.figures._families import lenet

FIGURE = lenet("fashion", "fashion-mnist", increment=1e-5)
