"""The speed of training steps: what is measured (cases, modes), how (measure, run), and how it is shown (table,
picture)."""
