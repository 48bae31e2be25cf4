"""Figure 7: LeNet-5 on MNIST."""

from reproduction.figures._families import lenet

FIGURE = lenet("fig7", "mnist", increment=1e-7)
