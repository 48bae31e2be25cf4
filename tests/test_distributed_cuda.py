"""Several ranks on a GPU: two processes share one here, so sums go by gloo; nccl would need a GPU for each."""

from typing import Any

import layer_cases as cases
import pytest
import ranks
import torch
from torch import Tensor

from altmin.runners.distributed import Distributed
from altmin.runners.layer_parallel import LayerParallel

pytestmark = pytest.mark.cuda
NAMES = ["straight", "smooth", "normed", "memory"]


def train(rank: int, spread: str) -> dict[str, list[Tensor]]:
    """Losses of some steps, and the weights after them, of every case on the GPU."""
    found = {}
    for name in NAMES:
        run: Any = cases.trainer(name, "cuda")
        run = Distributed(run) if spread == "samples" else LayerParallel(run, 1) if spread == "blocks" else run
        losses = [run.step(x.cuda(), y.cuda()).loss.cpu() for x, y in cases.batches()]
        if spread == "blocks":
            run.synchronize()
        found[name] = [torch.stack(losses), *(p.detach().cpu() for p in run.model.parameters())]
    return found


@pytest.mark.parametrize("spread", ["samples", "blocks"])
def test_ranks_on_a_gpu_give_what_one_process_gives(spread: str) -> None:
    expected = train(0, "nothing")
    for found in ranks.run(2, train, spread):
        for name in NAMES:
            torch.testing.assert_close([*found[name]], [*expected[name]], rtol=1e-9, atol=1e-11)
