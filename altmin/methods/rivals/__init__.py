"""Rivals from the literature, a file each."""

from altmin.methods.rivals import admm, bcd, dtp, predictive_coding, proxprop, straight_through  # noqa: F401
