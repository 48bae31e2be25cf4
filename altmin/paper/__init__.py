"""The paper: its figures, claims, theorem and timings, each by a command. Needs altmin[paper]."""
