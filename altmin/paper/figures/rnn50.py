"""An Elman net of 50 units on MNIST, one pixel a step (appendix)."""

from altmin.paper.figures._families import recurrent

FIGURE = recurrent("rnn50", 50, rates=(0.001, 0.002, 0.005))
