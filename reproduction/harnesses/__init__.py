"""Trials in harnesses that others wrote, with their data, loops and measures; each needs its package when it runs."""
