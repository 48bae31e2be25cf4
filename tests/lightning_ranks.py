"""Two processes of Lightning: `python tests/lightning_ranks.py NAME FOLDER`, which Lightning starts once more itself.
Every rank writes what it has in the end to FOLDER, and the first one a checkpoint after each epoch."""

import os
import sys
import warnings
from pathlib import Path

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from method_cases import problem
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import altmin
from altmin.integrations.lightning import AltMinModule, accuracy

SIZE, EPOCHS, ROWS = 20, 3, 80
"""SIZE: of a mini-batch of both ranks."""


def create(name: str) -> altmin.methods.Method:
    torch.manual_seed(0)
    growing = {"penalty": altmin.Penalty(increment=0.5, growth=1.5, maximum=None)} if name.startswith("am-") else {}
    return altmin.methods.create(name, altmin.models.mlp(4, (8,), 3), **growing)


def main(name: str, folder: str) -> None:
    warnings.simplefilter("ignore")
    method = create(name)
    rows = TensorDataset(*problem(ROWS))
    own = DistributedSampler(rows, num_replicas=2, rank=int(os.environ.get("LOCAL_RANK", 0)), shuffle=False)
    data = DataLoader(rows, batch_size=SIZE // 2, sampler=own)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    saved = ModelCheckpoint(folder, "{epoch}", save_top_k=-1)
    trainer = pl.Trainer(max_epochs=EPOCHS, accelerator="cpu", devices=2, strategy="ddp", callbacks=[saved], **quiet)
    trainer.fit(AltMinModule(method, metrics={"accuracy": accuracy}), data, data)
    measured = {key: float(value) for key, value in trainer.callback_metrics.items()}
    found = {"model": method.model.state_dict(), "method": method.state_dict(), "measured": measured}
    torch.save({**found, "steps": trainer.global_step}, Path(folder, f"rank{trainer.global_rank}.pt"))


if __name__ == "__main__":
    main(*sys.argv[1:])
