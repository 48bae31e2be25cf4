"""The paper's figures, and ours beyond it: one a file, declared as FIGURE."""
