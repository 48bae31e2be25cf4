"""Memories of several sites, added up from files, are those of one site; what does not belong together is refused."""

import copy

import pytest
import torch
from coactivation_cases import close, constant, joined, moved_codes, pairs
from merging_cases import PARTS, convolutional, gather, mlp, samples, site, state
from safetensors.torch import load_file, save_file
from torch import nn
from torch.utils import _pytree as pytree

import altmin
from altmin.training import apply_memories, checkpoint, fitted_weights, load_memories, merge_memories, save_memories


def equal(a, b) -> None:
    assert len(a) == len(b)
    for p, q in zip(a, b, strict=True):
        close(p, q)


def test_merged_memories_are_sums_over_the_samples_of_all_sites(tmp_path):
    sites = [site(rate=None, share=0.1, penalty=constant()) for _ in PARTS]
    model, (x, y) = sites[0].model, samples()
    merged = merge_memories(gather(sites, tmp_path))
    assert merged.samples == 23
    for l in (0, 1):
        seen = [p for i, j in PARTS for p in pairs(model, moved_codes(model, x[i:j], y[i:j]), l)]
        close(merged.gathered[l]["A"], sum(torch.outer(a, a) for a, _ in seen))
        W = joined(model[2 * l])
        close(merged.gathered[l]["R"], sum(torch.outer(c - W @ a, a) for a, c in seen))


@pytest.mark.parametrize("make", [mlp, convolutional])
@pytest.mark.parametrize("options", [{}, {"forget": 1.0, "steps": None}, {"sweeps": 2, "rate": None}])
def test_rounds_of_three_sites_end_where_one_site_with_all_parts_does(make, options, tmp_path):
    sites, one = [site(make, **options) for _ in PARTS], site(make, **options)
    before = state(one)
    for seed in (1, 2, 3):
        x, y = samples(seed)
        for i, j in PARTS:
            one.gather(x[i:j], y[i:j])
        one.apply()
        merge_memories(gather(sites, tmp_path, seed)).save(tmp_path / "merged.safetensors")
        for each in sites:
            apply_memories(each, tmp_path / "merged.safetensors")
            equal(state(each), state(one))
    assert all(each["A"].any() for each in one.updates.states.values())
    assert not torch.equal(before[0], state(one)[0])


@pytest.mark.parametrize(("share", "same"), [(0.0, True), (0.3, False)])
def test_without_moving_codes_the_parts_do_not_matter_with_them_they_do(share, same, tmp_path):
    sites, one = [site(share=share, rate=5.0) for _ in PARTS], site(share=share, rate=5.0)
    one.gather(*samples())
    merged = merge_memories(gather(sites, tmp_path))
    apart = (merged.gathered[1]["R"] - one.updates.gathered[1]["R"]).abs().max()
    assert (apart < 1e-10) == same
    assert same or apart > 1e-6
    close(merged.gathered[0]["A"], one.updates.gathered[0]["A"])  # inputs are nobody's code


def test_a_sum_can_be_added_to_and_the_order_of_sites_does_not_matter(tmp_path):
    files = gather([site() for _ in PARTS], tmp_path)
    merge_memories(files[:2]).save(tmp_path / "two.safetensors")
    whole, again = merge_memories(files), merge_memories([files[2], tmp_path / "two.safetensors"])
    assert whole.samples == again.samples == 23
    assert set(whole.gathered) == {0, 1, 2}
    for l, gathered in whole.gathered.items():
        equal(pytree.tree_leaves(gathered), pytree.tree_leaves(again.gathered[l]))


def test_a_site_that_is_sent_the_state_of_another_goes_on_with_it(tmp_path):
    sites = [site() for _ in PARTS]
    apply_memories(sites[0], merge_memories(gather(sites, tmp_path)))
    checkpoint.save(tmp_path / "sent", {"model": sites[0].model.state_dict(), "method": sites[0].state_dict()})
    sent = checkpoint.load(tmp_path / "sent")
    for each in sites[1:]:
        each.model.load_state_dict(sent["model"])
        each.load_state_dict(sent["method"])
    merged = merge_memories(gather(sites, tmp_path, seed=2))
    for each in sites:
        apply_memories(each, merged)
        equal(state(each), state(sites[0]))


@pytest.mark.parametrize("count", [1, 23])
def test_a_file_holds_as_many_numbers_whatever_the_number_of_samples(count, tmp_path):
    one = site()
    x, y = samples()
    one.gather(x[:count], y[:count])
    save_memories(one, tmp_path / "one.safetensors")
    numbers = sum(t.numel() for t in load_file(tmp_path / "one.safetensors").values())
    assert numbers == (5 * 5 + 5 * 5 + 1) + (6 * 6 + 6 * 6 + 1) + (6 * 3 + 3)  # n^2 + n m + 1, and the output layer


def test_saving_changes_nothing_and_the_file_holds_what_was_gathered(tmp_path):
    one = site()
    one.gather(*samples())
    before, gathered = state(one), copy.deepcopy(one.updates.gathered)
    save_memories(one, tmp_path / "one.safetensors")
    equal(before, state(one))
    found = load_memories(tmp_path / "one.safetensors").gathered
    assert all(map(torch.equal, pytree.tree_leaves(found), pytree.tree_leaves(gathered)))


def other_optimizer():
    other = site()
    other.optimizer.param_groups[0]["lr"] = 0.5
    return other


STRANGERS = {
    "networks": lambda: site(convolutional),
    "settings": lambda: site(damping=0.2),
    "values of mu": lambda: _later(site()),
    "digests of the weights": lambda: site(seed=1),
    "digests of earlier": other_optimizer,
}


def _later(method):
    method.penalty.step()
    return method


@pytest.mark.parametrize("what", STRANGERS)
def test_files_that_do_not_belong_together_are_refused_and_nothing_changes(what, tmp_path):
    here, stranger = site(), STRANGERS[what]()
    files = [tmp_path / "here.safetensors", tmp_path / "stranger.safetensors"]
    for each, file in zip((here, stranger), files, strict=True):
        each.gather(*samples())
        save_memories(each, file)
    with pytest.raises(
        ValueError, match=rf"stranger\.safetensors does not belong with .*here\.safetensors: the {what}"
    ):
        merge_memories(files)
    before = state(here)
    with pytest.raises(ValueError, match=rf"stranger\.safetensors does not belong with the method: the {what}"):
        apply_memories(here, files[1])
    equal(before, state(here))
    here.apply()  # what it had gathered is still there


def test_a_sum_is_applied_once(tmp_path):
    one = site()
    files = gather([one, site(), site()], tmp_path)
    apply_memories(one, merge_memories(files))
    with pytest.raises(ValueError, match=r"does not belong with the method"):
        apply_memories(one, files[0])


def test_a_site_counts_once(tmp_path):
    files = gather([site() for _ in PARTS], tmp_path)
    copied = tmp_path / "copied.safetensors"
    copied.write_bytes(files[1].read_bytes())
    for again in (files[1], copied):
        with pytest.raises(ValueError, match=r"holds the same sums as .*site1.safetensors, which would count twice"):
            merge_memories([*files, again])
    with pytest.raises(ValueError, match=r"no file was given"):
        merge_memories([])


def test_damaged_and_foreign_files_are_named(tmp_path):
    good, bad = gather([site() for _ in PARTS], tmp_path)[0], tmp_path / "bad.safetensors"
    content = good.read_bytes()
    for damaged in (content[:-9], content[:-1] + bytes([content[-1] ^ 1]), b"", b"{}"):
        bad.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"bad.safetensors .*(cannot be read|damaged)"):
            merge_memories([good, bad])
    save_file({"x": torch.ones(2)}, bad)
    with pytest.raises(ValueError, match=r"bad.safetensors is not a checkpoint"):
        merge_memories([good, bad])
    checkpoint.save(bad, {"model": {}})
    with pytest.raises(ValueError, match=r"bad.safetensors holds no memories of a site"):
        merge_memories([good, bad])


def test_what_cannot_be_saved_is_refused_and_no_file_is_made(tmp_path):
    normed = altmin.AltMin(
        nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3)).double(),
        weights=altmin.FittedMemory(),
    )
    normed.gather(*samples())
    for method, words in [
        (site(), "has gathered nothing to save"),
        (altmin.methods.create("adam", mlp()), "need an altmin.AltMin"),
        (normed, "1 is a batch norm, whose statistics"),
    ]:
        with pytest.raises(ValueError, match=words):
            save_memories(method, tmp_path / "none.safetensors")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("options", [{}, {"steps": None}, {"sweeps": 2}])
def test_hidden_weights_are_fitted_from_files_alone(options, tmp_path):
    sites = [site(**options) for _ in PARTS]
    merged = merge_memories(gather(sites, tmp_path))
    weights = {name: p.clone() for name, p in sites[0].model.state_dict().items()}
    before = {name: p.clone() for name, p in weights.items()}
    fitted = fitted_weights(merged, weights)
    for one, other in ((fitted, weights), (weights, before)):
        for name in ("4.weight", "4.bias") if one is fitted else before:
            assert torch.equal(one[name], other[name])
    apply_memories(sites[0], merged)
    for name, p in sites[0].model.named_parameters():
        if not name.startswith("4."):
            close(fitted[name], p)
            assert not torch.equal(fitted[name], weights[name])


def test_weights_that_the_sites_did_not_begin_with_are_not_fitted(tmp_path):
    sites = [site() for _ in PARTS]
    merged, weights = merge_memories(gather(sites, tmp_path)), sites[0].model.state_dict()
    with pytest.raises(ValueError, match=r"has 2.bias, float64 6; in the model it is absent"):
        fitted_weights(merged, {name: p for name, p in weights.items() if name != "2.bias"})
    with pytest.raises(ValueError, match=r"has 0.weight, float64 5x4; in the model it is float32 5x4"):
        fitted_weights(merged, {name: p.float() for name, p in weights.items()})
    with pytest.raises(ValueError, match=r"other weights than the sites had"):
        fitted_weights(merged, {name: p + 1 for name, p in weights.items()})
    for each in sites:
        apply_memories(each, merged)
    later = merge_memories(gather(sites, tmp_path, seed=2))
    with pytest.raises(ValueError, match=r"remember earlier rounds"):
        fitted_weights(later, sites[0].model.state_dict())
