"""A checkpoint gives back what it was given, and says plainly when it cannot."""

import math
import os
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from altmin.training import checkpoint


def same(a: Any, b: Any) -> bool:
    """Equal in value and in type, all the way down; tensors bit by bit."""
    if type(a) is not type(b):
        return False
    if isinstance(a, Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and a.numpy().tobytes() == b.numpy().tobytes()
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return a == b or (isinstance(a, float) and math.isnan(a) and math.isnan(b))


leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.sampled_from(["tensor", "tuple", "dict", "accelerator"]),
    st.lists(st.floats(width=32), max_size=3).map(torch.tensor),
    st.sampled_from(
        [torch.tensor(3), torch.ones(2, 0), torch.tensor(True), torch.ones(2, dtype=torch.bfloat16).float()]
    ),
)
keys = st.one_of(st.text(), st.integers(), st.booleans(), st.tuples(st.integers(), st.text()))
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(keys, inner, max_size=3),
    ),
    max_leaves=12,
)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.text(), trees, max_size=3))
def test_any_nested_state_comes_back_as_it_was(tmp_path_factory: pytest.TempPathFactory, state: dict[str, Any]) -> None:
    path = tmp_path_factory.mktemp("checkpoint") / "state"
    checkpoint.save(path, state)
    assert same(checkpoint.load(path), state)


def test_tensors_that_share_memory_or_lie_across_it_are_stored_by_value(tmp_path: Path) -> None:
    whole = torch.arange(6.0).reshape(2, 3)
    checkpoint.save(tmp_path / "c", {"a": whole, "b": whole.T, "c": whole[0]})
    state = checkpoint.load(tmp_path / "c")
    assert state["b"].tolist() == [[0, 3], [1, 4], [2, 5]]
    state["a"].zero_()
    assert state["c"].tolist() == [0, 1, 2]


def test_sparse_tensors_are_stored_by_their_rows(tmp_path: Path) -> None:
    rows = torch.sparse_coo_tensor(
        torch.tensor([[4, 1, 4]]), torch.arange(1.0, 7.0).view(3, 2), (9, 2), check_invariants=True
    )
    empty = torch.zeros(3, 2).to_sparse(1)
    checkpoint.save(tmp_path / "c", {"rows": rows, "empty": empty})
    state = checkpoint.load(tmp_path / "c")
    assert state["rows"].is_coalesced()
    assert state["rows"].indices().tolist() == [[1, 4]]
    assert state["rows"].values().tolist() == [[3, 4], [6, 8]]
    assert state["rows"].shape == (9, 2)
    assert torch.equal(state["empty"].to_dense(), torch.zeros(3, 2))


def test_a_loaded_tensor_can_be_written_to_without_changing_the_file(tmp_path: Path) -> None:
    checkpoint.save(tmp_path / "c", {"a": torch.ones(3)})
    checkpoint.load(tmp_path / "c")["a"].zero_()
    assert checkpoint.load(tmp_path / "c")["a"].tolist() == [1, 1, 1]


def test_an_ordered_dict_counts_as_a_dict(tmp_path: Path) -> None:
    checkpoint.save(tmp_path / "c", {"a": OrderedDict(z=1, b=2)})
    assert list(checkpoint.load(tmp_path / "c")["a"].items()) == [("z", 1), ("b", 2)]


def test_what_cannot_be_stored_is_named_and_the_old_checkpoint_stays(tmp_path: Path) -> None:
    checkpoint.save(tmp_path / "c", {"a": 1})
    with pytest.raises(ValueError, match=r"state\.method\.2, which is of type set"):
        checkpoint.save(tmp_path / "c", {"method": [1, 2, {3}]})
    assert checkpoint.load(tmp_path / "c") == {"a": 1}
    assert os.listdir(tmp_path) == ["c"]


def test_an_error_while_writing_leaves_the_old_checkpoint_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint.save(tmp_path / "c", {"a": 1})

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        checkpoint.save(tmp_path / "c", {"a": 2})
    assert checkpoint.load(tmp_path / "c") == {"a": 1}
    assert os.listdir(tmp_path) == ["c"]


def test_a_checkpoint_cut_anywhere_is_called_damaged(tmp_path: Path) -> None:
    path = tmp_path / "c"
    checkpoint.save(path, {"a": torch.ones(50), "b": "text"})
    whole = path.read_bytes()
    for length in [0, 1, 7, 8, 9, 40, len(whole) // 2, len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match="cannot be read as a checkpoint: it is damaged or of another kind"):
            checkpoint.load(path)


def test_a_flipped_bit_anywhere_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "c"
    checkpoint.save(path, {"a": torch.arange(20.0), "b": [torch.ones(3, dtype=torch.int64), 0.5, "text"], "c": None})
    whole = path.read_bytes()
    for place in range(len(whole)):
        for bit in range(8) if place % 7 == 0 else [place % 8]:
            changed = bytearray(whole)
            changed[place] ^= 1 << bit
            path.write_bytes(changed)
            with pytest.raises(ValueError, match=r"is damaged|not a checkpoint written by") as error:
                checkpoint.load(path)
            assert "\n" not in str(error.value)


def test_tensors_that_changed_places_are_noticed(tmp_path: Path) -> None:
    path = tmp_path / "c"
    checkpoint.save(path, {"a": torch.zeros(2), "b": torch.ones(2)})
    with safe_open(path, framework="pt") as file:
        header, (a, b) = file.metadata(), sorted(file.keys())
        tensors = {a: file.get_tensor(b), b: file.get_tensor(a)}
    save_file(tensors, path, header)
    with pytest.raises(ValueError, match="c is damaged: it no longer holds what was written; go back to an earlier"):
        checkpoint.load(path)


def test_checkpoints_of_older_formats_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "c"
    save_file({"0 a": torch.ones(2)}, path, {"format": "altmin checkpoint 2", "state": '{"dict": []}'})
    with pytest.raises(ValueError, match=r"not a checkpoint written by this version .* 'altmin checkpoint 4'"):
        checkpoint.load(path)


def test_of_two_long_settings_the_message_shows_where_they_part(tmp_path: Path) -> None:
    layers = ", ".join(f"layer {i}" for i in range(200))
    file = checkpoint.CheckpointFile(tmp_path / "c", None, {("run", "model"): layers})
    file.save({})
    other = checkpoint.CheckpointFile(
        tmp_path / "c", None, {("run", "model"): layers.replace("layer 120,", "layer\n-1,")}
    )
    message = (
        r"c belongs to another run: its model is \.\.\. layer 120, .{,160} \.\.\., here it is \.\.\. layer -1, .{,160}"
    )
    with pytest.raises(ValueError, match=message) as error:
        other.load(torch.device("cpu"))
    assert "\n" not in str(error.value)


def test_settings_of_one_side_alone_are_told(tmp_path: Path) -> None:
    first = checkpoint.CheckpointFile(tmp_path / "c", None, {("caller", "data"): "mnist"})
    second = checkpoint.CheckpointFile(tmp_path / "c", None, {("run", "data"): "mnist"})
    first.save({})
    with pytest.raises(ValueError, match="its data is absent, here it is mnist"):
        second.load(torch.device("cpu"))
    second.save({})
    with pytest.raises(ValueError, match="its data is mnist, here it is absent"):
        checkpoint.CheckpointFile(tmp_path / "c", None, {}).load(torch.device("cpu"))


def test_files_of_other_programs_are_told_apart(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    save_file({"weight": torch.ones(2)}, foreign)
    with pytest.raises(ValueError, match="foreign is not a checkpoint written by this version of altmin"):
        checkpoint.load(foreign)
    pickled = tmp_path / "pickled"
    torch.save({"a": 1}, pickled)
    with pytest.raises(ValueError, match="pickled cannot be read as a checkpoint"):
        checkpoint.load(pickled)


def test_a_missing_checkpoint_is_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        checkpoint.load(tmp_path / "nowhere")
