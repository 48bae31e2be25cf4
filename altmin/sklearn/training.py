"""A network in training on rows of a table, dense or sparse, which it takes a few at a time and standardised: all that
`partial_fit` goes on with, also after pickling."""

import copy
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

from altmin.common.errors import Diverged
from altmin.methods.protocol import Method
from altmin.training.explosion import LossWatch, exploded, scale_of
from altmin.training.samples import batches_per_epoch, device_of

CHUNK = 1000
"""The number of rows of a sparse table that are dense at once where there is no batch size."""
_ALONE = threading.RLock()
"""Held by the one thread that may draw torch's random numbers, which all threads of a process share."""


class Rows(NamedTuple):
    """A table, its targets as the loss takes them, and the weights of its rows, None if all are 1."""

    X: Any
    t: Tensor
    w: Tensor | None = None

    def some(self, rows: Any) -> "Rows":
        """Return these rows alone."""
        return Rows(self.X[rows], self.t[rows], None if self.w is None else self.w[rows])


def dense(X: Any) -> np.ndarray:
    """Return rows of a table as an array of their own."""
    return X.toarray() if hasattr(X, "toarray") else np.array(X, order="C")


def chunks(n: int) -> Iterator[slice]:
    """Return slices that cover n rows."""
    return (slice(i, min(i + CHUNK, n)) for i in range(0, n, CHUNK))


def learn_scale(scaler: StandardScaler, X: Any, w: np.ndarray | None = None, what: str = "column") -> None:
    """Add the rows of a table to what a scaler knows of means and variances. w: their weights. ValueError unless these
    are finite, and normal numbers where a column varies. what: what a column is called in that message.

    A sparse table goes through the same arithmetic as a dense one, so that both have the same scale.
    """
    varies = np.zeros(X.shape[1], bool)
    with np.errstate(over="ignore", invalid="ignore"):
        for part in chunks(X.shape[0]):
            rows = dense(X[part])
            varies |= (rows != rows[0]).any(0)
            scaler.partial_fit(rows, sample_weight=None if w is None else w[part])
    if len(wrong := np.flatnonzero(~np.isfinite(scaler.mean_ + scaler.var_))):
        raise ValueError(f"{what} {wrong[0]} has no finite mean and variance: its numbers are too large; scale them")
    if len(wrong := np.flatnonzero(varies & (scaler.var_ < np.finfo(np.float64).tiny))):
        raise ValueError(f"{what} {wrong[0]} has a variance below float64's: its numbers are too small; scale them")


class Training:
    """A method that trains a network on rows in mini-batches of `batch_size`.

    loss: of the network's output and the targets. prepare: the module that standardises rows. generator: the
    state of the random numbers, which go on from call to call and are its own. losses: the mean loss of each epoch;
    held_losses: the validation loss after each epoch.
    """

    def __init__(self, method: Method, loss: nn.Module, batch_size: int, generator: Tensor):
        self.method, self.loss, self.batch_size = method, loss, batch_size
        self.generator, self.device = generator, device_of(method.model)
        self.prepare: nn.Module = nn.Identity()
        self.losses: list[float] = []
        self.held_losses: list[float] = []
        self.watch = LossWatch()

    def fit(self, rows: Rows, val: Rows | None, epochs: int, tol: float, patience: int, verbose: bool = False) -> None:
        """Train for epochs, each in a random order, until the loss has for `patience` of them not fallen by more than
        `tol` below its lowest. With validation rows it is their loss, and the weights are in the end those of the epoch
        where it was lowest. verbose: whether the loss of each epoch is printed. `Diverged` if a loss, parameters or
        outputs are not finite, or a loss explodes."""
        lowest, waited, best = math.inf, 0, None
        for epoch in range(epochs):
            with self.random_numbers():
                watched = self._epoch(rows, torch.randperm(len(rows.t)))
            if val is not None:
                watched = self.mean_loss(val)
                self.held_losses.append(watched)
            if verbose:
                print(f"epoch {epoch + 1}: loss {watched:.6f}", flush=True)
            waited = 0 if watched < lowest - tol else waited + 1
            if watched < lowest:
                lowest = watched
                if val is not None:
                    best = copy.deepcopy((self.method.model.state_dict(), self.method.state_dict()))
            if waited >= patience:
                break
        if best is not None:
            self.method.model.load_state_dict(best[0])
            self.method.load_state_dict(best[1])
        self._demand_finite(rows)
        self._demand_low(self.mean_loss(rows), self.inputs(rows.X[:CHUNK]), rows.t, times=2)
        if val is not None:
            self._demand_finite(val)

    def once(self, rows: Rows) -> None:
        """Make one pass over the rows in their order."""
        with self.random_numbers():
            self._epoch(rows, torch.arange(len(rows.t)))
        self._demand_finite(rows)

    def inputs(self, X: Any) -> Tensor:
        """Return rows of a table as the network takes them."""
        x = torch.from_numpy(dense(X))
        return self.prepare(x).to(self.device, x.dtype)

    def outputs(self, X: Any) -> Tensor:
        """Return what the network gives for the rows of a table."""
        with torch.no_grad():
            return torch.cat([self.method.model(self.inputs(X[part])) for part in chunks(X.shape[0])])

    def mean_loss(self, rows: Rows) -> float:
        """Return the loss over all rows, by their weights."""
        output, t = self.outputs(rows.X), rows.t.to(self.device)
        if rows.w is None:
            return float(self.loss(output, t))
        of_rows = type(self.loss)(reduction="none")(output, t).reshape(len(t), -1).mean(1)
        return float(of_rows @ rows.w.to(output) / rows.w.sum())

    def _demand_finite(self, rows: Rows) -> None:
        """Raise `Diverged` unless parameters, the optimizer's state and the network's outputs for these rows are
        finite, whatever the method checks by itself."""
        optimizer = self.method.optimizer
        entries = () if optimizer is None else optimizer.state.values()
        state = [t for entry in entries for t in entry.values() if isinstance(t, Tensor)]
        if not all(bool(t.isfinite().all()) for t in (*self.method.model.parameters(), *state, self.outputs(rows.X))):
            raise Diverged("the network", "lower the learning rate, or give inputs of a smaller size")

    def _demand_low(self, loss: float, x: Tensor, t: Tensor, times: int = 1) -> None:
        """Raise `Diverged` if a loss of these rows explodes. times: as how many batches it counts."""
        if any(self.watch.explodes(loss, partial(scale_of, x, t)) for _ in range(times)):
            raise exploded(loss, self.method, x, t)

    def _epoch(self, rows: Rows, order: Tensor) -> float:
        """Train on all rows in this order, and return the mean loss of the batches, each before its step."""
        model, size = self.method.model, self.batch_size
        losses, counts = [], []
        model.train()
        try:
            for part in order.split(size)[: batches_per_epoch(model, len(order), size)]:
                batch = rows.some(part.numpy())
                x, t = self.inputs(batch.X), batch.t.to(self.device)
                how: dict[str, Any] = {"rows": part} if getattr(self.method, "takes_rows", False) else {}
                if batch.w is not None:
                    how["sample_weight"] = batch.w.to(self.device)
                losses.append(float(self.method.step(x, t, **how).loss))
                counts.append(len(part) if batch.w is None else float(batch.w.sum()))
                if not math.isfinite(losses[-1]):
                    raise Diverged("the loss", "lower the learning rate")
                self._demand_low(losses[-1], x, t)
            self.method.end_epoch()
        finally:
            model.eval()
        self.losses.append(float(np.average(losses, weights=counts)))
        return self.losses[-1]

    @contextmanager
    def random_numbers(self) -> Iterator[None]:
        """Let torch's random numbers be those of this training, which go on from where they were."""
        with own_random_numbers(self.device):
            torch.set_rng_state(self.generator)
            yield
            self.generator = torch.get_rng_state()


@contextmanager
def own_random_numbers(*devices: torch.device) -> Iterator[None]:
    """Let torch's random numbers be changed, and restore them; meanwhile no other thread trains."""
    with _ALONE, torch.random.fork_rng([device for device in devices if device.type == "cuda"]):
        yield
