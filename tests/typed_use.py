"""What users write, as `make check` has mypy read it; nothing here is run."""

import torch
from torch import nn

import altmin
from altmin.training import EarlyStopping, Progress
from altmin.training.callbacks import BestWeights

x, y = torch.randn(8, 4), torch.randint(2, (8,))
model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2))
am = altmin.AltMin(model, loss=nn.CrossEntropyLoss(), weights=altmin.LocalAdam(lr=0.01), codes=altmin.GradientCodes())
loss: float = float(am.step(x, y).loss)
method = altmin.methods.create("am-adam", model, lr=0.01)


def stops(progress: Progress) -> bool:
    return progress.epoch > 3


altmin.fit(method, (x, y), (x, y), epochs=1, batch_size=4, callbacks=EarlyStopping(5))
altmin.fit(method, (x, y), (x, y), epochs=1, batch_size=4, callbacks=[EarlyStopping(5), BestWeights()])
history = altmin.fit(am, (x, y), epochs=1, batch_size=4, callbacks=stops, schedule="cosine", record=False)
rows: list[dict[str, object]] = history.epochs
