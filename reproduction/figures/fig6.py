"""Figure 6: an Elman net of 15 units on MNIST, one pixel a step."""

from reproduction.figures._families import recurrent

PAPER = {"adam": 0.005, "sgd": 0.05}
FIGURE = recurrent("fig6", 15, (0.002, 0.005, 0.01), PAPER, increment=0.01, growth=1.1, maximum=1.0)
