"""The co-activation memory: sums over all samples, merging, saving, and what it cannot serve."""

import copy

import pytest
import reference
import torch
from coactivation_cases import F64, MU, batch, close, constant, joined, mlp, moved_codes, pairs, problem, trainer
from conftest import update_codes
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

import altmin

# -- A and B ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bias", [True, False])
def test_plain_memory_is_the_sum_over_all_samples_of_all_batches(bias):
    model = mlp(bias)
    am = trainer(model, forget=1.0, damping=0.1)
    seen: dict[int, list] = {0: [], 1: []}
    for i in range(3):
        x, y = batch(i)
        codes = moved_codes(model, x, y)
        for l in seen:
            seen[l] += pairs(model, codes, l)
        am.step(x, y)
    for l, all_pairs in seen.items():
        A, B = reference.memory(all_pairs)
        memory = am.weights.memories[l]
        close(memory.A, A)
        close(memory.B, B)
        assert memory.samples == len(all_pairs) == 36


def test_forgetting_weighs_a_batch_by_its_age():
    model = mlp()
    am = trainer(model, forget=0.7)
    parts = []
    for i in range(3):
        x, y = batch(i)
        parts.append(reference.memory(pairs(model, moved_codes(model, x, y), 1)))
        am.step(x, y)
    close(am.weights.memories[1].A, 0.49 * parts[0][0] + 0.7 * parts[1][0] + parts[2][0])
    close(am.weights.memories[1].B, 0.49 * parts[0][1] + 0.7 * parts[1][1] + parts[2][1])
    assert am.weights.memories[1].samples == pytest.approx(12 * (0.49 + 0.7 + 1))


@given(
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    stride=st.tuples(st.integers(1, 2), st.integers(1, 3)),
    padding=st.tuples(st.integers(0, 2), st.integers(0, 1)),
    dilation=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    bias=st.booleans(),
    one_dimension=st.booleans(),
)
def test_a_convolutions_memory_is_the_sum_over_its_patches(kernel, stride, padding, dilation, bias, one_dimension):
    torch.manual_seed(0)
    settings = {"stride": stride, "padding": padding, "dilation": dilation}
    if one_dimension:
        conv = nn.Conv1d(2, 3, kernel[1], bias=bias, **{k: v[1] for k, v in settings.items()}).double()
        x = torch.randn(2, 2, 6, dtype=F64)
        kernel, flat = (1, kernel[1]), x.unsqueeze(2)
        settings = {"stride": (1, stride[1]), "padding": (0, padding[1]), "dilation": (1, dilation[1])}
    else:
        conv = nn.Conv2d(2, 3, kernel, bias=bias, **settings).double()
        flat = x = torch.randn(2, 2, 5, 6, dtype=F64)
    head = nn.Sequential(nn.Tanh(), nn.Flatten(), nn.Linear(conv(x)[0].numel(), 3).double())
    model, y = nn.Sequential(conv, *head), torch.tensor([0, 2])
    codes = moved_codes(model, x, y)
    am = trainer(model, forget=1.0)
    am.step(x, y)
    seen = []
    for t in range(2):
        places = reference.patches(flat[t], kernel, **settings)
        targets = codes[1][t].flatten(1).T
        assert len(places) == len(targets)
        for a, c in zip(places, targets, strict=True):
            seen.append((torch.cat([a, torch.ones(1 if bias else 0, dtype=F64)]), c))
    A, B = reference.memory(seen)
    close(am.weights.memories[0].A, A)
    close(am.weights.memories[0].B, B)


def test_memory_holds_codes_and_not_residuals():
    """With codes that do not move, B is W A."""
    model = mlp()
    x, y = batch(0)
    encoded, _, problems = update_codes(model, altmin.GradientCodes(), x, y, 1e12)  # so dear that no code moves
    block = altmin.split(model).blocks[1]
    with torch.no_grad():
        found = altmin.FittedMemory(rate=None).measure(block, block.parameters(), problems[1])
    a = F.pad(torch.tanh(encoded[0]), (0, 1), value=1.0)
    A, R = found["A"] * len(x), found["R"] * len(x)  # contributions are means over samples
    close(A, a.T @ a, 1e-9)
    close(joined(model[2]) @ A + R, encoded[1].T @ a, 1e-9)


@pytest.mark.parametrize("rate", [0.5, 30.0])
def test_with_a_rate_a_code_asks_for_a_gradient_step_of_that_length_on_its_own_samples_loss(rate):
    model = mlp()
    x, y = batch(0)
    codes, W = moved_codes(model, x, y), joined(model[2])
    delta = update_codes(model, altmin.GradientCodes(), x, y, MU)[2][1].delta * len(x)  # of a sum over samples
    asked = [(a, W @ a - rate * d) for (a, _), d in zip(pairs(model, codes, 1), delta, strict=True)]
    am = trainer(model, rate=rate)
    am.step(x, y)
    A, B = reference.memory(asked)
    close(am.weights.memories[1].A, A)
    close(am.weights.memories[1].B, B)


def test_parts_of_a_mini_batch_add_up_to_its_memory():
    """Also once a memory is kept; of the first block the inputs are known."""
    am = trainer(mlp(), forget=0.5)
    am.step(*batch(0))
    am.step(*batch(1))
    for part in (2, 3, 4):
        am.gather(*batch(part))
    am.apply()
    am.step(*batch(5))
    expected = 0.0
    for parts in ((0,), (1,), (2, 3, 4), (5,)):
        a = torch.cat([F.pad(batch(part)[0], (0, 1), value=1.0) for part in parts])
        expected = 0.5 * expected + a.T @ a
    close(am.weights.memories[0].A, expected)
    assert am.weights.memories[0].samples == pytest.approx(12 * (0.125 + 0.25 + 3 * 0.5 + 1))


def test_what_was_handed_out_stays_as_it_was():
    am = trainer(mlp(), forget=0.5)
    am.step(*batch(0))
    memories = am.weights.memories
    before = copy.deepcopy(memories)
    for i in range(3):
        am.step(*batch(i))
    for l, memory in before.items():
        assert torch.equal(memories[l].A, memory.A)
        assert torch.equal(memories[l].B, memory.B)


# -- prior memories, merging, saving ----------------------------------------------------------------------------------


def test_memories_of_two_streams_merge_by_addition():
    first, second, both = (altmin.Memory(*problem(i)[2:4], samples=20) for i in (0, 1, 2))
    both = first + second
    a = [problem(i)[0] for i in (0, 1)]
    c = [problem(i)[1] for i in (0, 1)]
    A, B = reference.memory(list(zip(torch.cat(a), torch.cat(c), strict=True)))
    close(both.A, A)
    close(both.B, B)
    assert both.samples == 40


def test_a_prior_memory_counts_as_if_its_samples_had_been_seen():
    seen, fresh = mlp(), mlp()
    first = trainer(seen, forget=1.0, damping=0.0)
    first.step(*batch(0))
    fresh.load_state_dict(copy.deepcopy(seen.state_dict()))
    second = trainer(fresh, forget=1.0, damping=0.0, prior=dict(first.weights.memories))
    x, y = batch(1)
    first.step(x, y)
    second.step(x, y)
    for p, q in zip(seen.parameters(), fresh.parameters(), strict=True):
        close(p, q)
    assert torch.equal(first.weights.memories[0].A, second.weights.memories[0].A)


def test_a_prior_memory_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"memory was given for block 2, but memory serves the blocks \[0, 1\]"):
        trainer(mlp(), prior={2: altmin.Memory(torch.eye(7), torch.zeros(3, 7), 1)})
    with pytest.raises(ValueError, match=r"memory for block 0 is for weights \(5, 9\), not \(5, 5\)"):
        trainer(mlp(), prior={0: altmin.Memory(torch.eye(9), torch.zeros(5, 9), 1)})


# -- what memory cannot serve -----------------------------------------------------------------------------------------


def test_blocks_that_memory_cannot_serve_are_left_to_the_rest():
    torch.manual_seed(0)
    model = nn.Sequential(
        *(nn.Conv2d(1, 2, 3), nn.ReLU()),
        *(nn.Conv2d(2, 2, 3, groups=2), nn.ReLU()),
        *(nn.Conv2d(2, 2, 3, padding=1, padding_mode="circular"), nn.ReLU()),
        *(nn.ConvTranspose2d(2, 2, 1), nn.ReLU(), nn.Flatten()),
        *(nn.Linear(8, 6), nn.BatchNorm1d(6), nn.ReLU()),
        *(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 5), nn.PReLU(), nn.Linear(5, 3)),
    ).double()
    x, y = torch.randn(9, 1, 6, 6, dtype=F64), torch.randint(3, (9,))
    twin = copy.deepcopy(model)
    model[14].bias.requires_grad_(False)  # a frozen parameter: not for a solve of all
    am = altmin.AltMin(model, weights=altmin.FittedMemory(rest=altmin.LocalSGD(lr=0.05)), penalty=constant())
    am.step(x, y)
    assert sorted(am.weights.memories) == [0, 5]
    frozen = model[14].bias
    assert torch.equal(frozen, twin[14].bias)
    altmin.AltMin(twin, weights=altmin.LocalSGD(lr=0.05), penalty=constant()).step(x, y)
    for (name, p), q in zip(model.named_parameters(), twin.parameters(), strict=True):
        served = name.split(".")[0] in ("0", "12")
        if p is frozen:
            continue
        assert torch.equal(p, q) != served, f"{name} should {'not ' * served}be left to the rest"


def test_settings_out_of_range_are_refused():
    with pytest.raises(ValueError, match=r"forget of FittedMemory lies between 0 and 1, given 1\.5"):
        altmin.FittedMemory(forget=1.5)
    with pytest.raises(ValueError, match="damping of FittedMemory must be a finite number of at least 0, given -1"):
        altmin.FittedMemory(damping=-1)
    with pytest.raises(ValueError, match="sweeps of FittedMemory must be a whole number of at least 1, given 0"):
        altmin.FittedMemory(sweeps=0)
    with pytest.raises(ValueError, match="rate of FittedMemory must be a finite number above 0"):
        altmin.FittedMemory(rate=0)
