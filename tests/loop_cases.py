"""What tests of the training loop share: problems, methods on small nets, and what came of a run."""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from altmin import methods
from altmin.training import EachBatch, History

Samples = tuple[Tensor, Tensor]


def samples(n: int = 50, seed: int = 0, dtype: torch.dtype = torch.float32) -> Samples:
    """Three classes, told apart by the largest of three features."""
    x = torch.randn(n, 6, generator=torch.Generator().manual_seed(seed)).to(dtype)
    return x, x[:, :3].argmax(1)


def numbers(n: int = 50, seed: int = 0) -> Samples:
    """A problem of regression."""
    x = torch.randn(n, 6, generator=torch.Generator().manual_seed(seed))
    return x, x[:, :2].sin()


def learner(name: str = "am-adam", seed: int = 0, outputs: int = 3, **options: Any) -> Any:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, outputs))
    return methods.create(name, model, **{"lr": 0.01, **options})


class Pairs(Dataset[Samples]):
    """Samples one by one."""

    def __init__(self, x: Tensor, y: Tensor):
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> Samples:
        return self.x[i], self.y[i]


@dataclass
class Loss:
    loss: Tensor


class Recorder:
    """A method that learns nothing and writes down what it saw; sample i is the number i."""

    def __init__(self, model: nn.Module | None = None, losses: Any = None):
        self.model = model or nn.Linear(1, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.5)
        self.seen: list[list[int]] = []
        self.rates: list[float] = []
        self.ends: list[int] = []
        self.losses = losses

    def step(self, x: Tensor, y: Tensor) -> Loss:
        assert torch.equal(x[:, 0].long(), y), "a sample came with another's label"
        self.seen.append(y.tolist())
        self.rates.append(self.optimizer.param_groups[0]["lr"])
        self.optimizer.step()  # schedulers of torch expect one
        return Loss(torch.tensor(float(len(self.seen)) if self.losses is None else self.losses.pop(0)))

    def end_epoch(self) -> None:
        self.ends.append(len(self.seen))

    def state_dict(self) -> dict[str, Any]:
        return {"optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(state["optimizer"])


class RowRecorder(Recorder):
    """A method that keeps something for each sample."""

    takes_rows = True

    def step(self, x: Tensor, y: Tensor, rows: Tensor | None = None) -> Loss:
        assert rows is not None
        assert torch.equal(rows, y), "sample i is the number i"
        return super().step(x, y)


def numbered(n: int) -> Samples:
    return torch.arange(float(n))[:, None], torch.arange(n)


class Stop(Exception):
    pass


def stop_at(batch: int, error: BaseException | None = None) -> EachBatch:
    """A callback that raises after a batch."""

    def report(progress: Any) -> None:
        if progress.batch == batch:
            raise error or Stop

    return EachBatch(report)


def outcome(method: Any, history: History) -> tuple[dict[str, bytes], dict[str, Any]]:
    """The weights bit for bit, and the rows but for their times."""
    rows = asdict(history)
    for row in rows["epochs"]:
        assert row.pop("seconds") > 0
    return {name: value.numpy().tobytes() for name, value in method.model.state_dict().items()}, rows


def weights(method: Any) -> list[Tensor]:
    return [p.detach().clone() for p in method.model.parameters()]
