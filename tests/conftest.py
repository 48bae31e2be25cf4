"""Settings of all tests: one thread, reproducible property tests, CUDA tests skipped where there is no CUDA."""

import pytest
import torch
from hypothesis import HealthCheck, settings

# Tensors here are tiny: a second thread gains nothing, and on a busy machine waiting for it costs twenty times as much.
torch.set_num_threads(1)

settings.register_profile(
    "altmin", deadline=None, derandomize=True, max_examples=25, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("altmin")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("cuda"):
            item.add_marker(pytest.mark.skip(reason="no CUDA device on this machine"))
