"""Figure 7: LeNet-5 on MNIST."""

from _families import lenet

FIGURE = lenet("fig7", "mnist")
