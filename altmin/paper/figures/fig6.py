"""Figure 6: an Elman net of 15 units on MNIST, one pixel a step."""

from altmin.paper.figures._families import recurrent

FIGURE = recurrent("fig6", 15, rates=(0.002, 0.005, 0.01))
