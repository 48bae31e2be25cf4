"""An Elman net of 50 units on MNIST, one pixel a step (appendix)."""

from reproduction.figures._families import recurrent

PAPER = {"adam": 0.005, "sgd": 0.005}
FIGURE = recurrent("rnn50", 50, (0.001, 0.002, 0.005), PAPER, increment=1e-4, growth=1.0, maximum=1.0)
