"""`altmin merge`: files of sites become their sum, and weights fitted to it; a mistake leaves nothing."""

from pathlib import Path

import pytest
import torch
from commands import altmin  # noqa: F401  (a fixture)
from merging_cases import PARTS, gather, site
from safetensors.torch import load_file, save_file

from altmin.training import apply_memories, fitted_weights, merge_memories


@pytest.fixture
def files(altmin, tmp_path: Path) -> list[Path]:  # noqa: F811
    sites = [site() for _ in PARTS]
    save_file(sites[0].model.state_dict(), "model.safetensors", {"made by": "a test"})
    return gather(sites, tmp_path)


def test_the_sum_is_what_the_sites_apply(altmin, files, capsys):  # noqa: F811
    assert altmin("merge", *files, "--out", "merged.safetensors") == 0
    assert capsys.readouterr().out == "added up 3 files with 23 samples\nwrote merged.safetensors\n"
    one, other = site(), site()
    apply_memories(one, "merged.safetensors")
    apply_memories(other, merge_memories(files))
    torch.testing.assert_close([*one.model.parameters()], [*other.model.parameters()], rtol=0, atol=0)


def test_given_a_model_its_hidden_weights_are_written_too(altmin, files, capsys):  # noqa: F811
    with_model = ("--model", "model.safetensors", "--new-model", "new.safetensors")
    assert altmin("merge", *files, "--out", "merged.safetensors", *with_model) == 0
    assert "no memory holds 4.weight, 4.bias: as in model.safetensors" in capsys.readouterr().out
    expected = fitted_weights(merge_memories(files), load_file("model.safetensors"))
    found = load_file("new.safetensors")
    assert expected.keys() == found.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["site0.safetensors", "absent.safetensors"], "absent.safetensors: No such file"),
        (["site0.safetensors", "site0.safetensors"], "which would count twice"),
        (["site0.safetensors", "model.safetensors"], "model.safetensors is not a checkpoint"),
        (["site0.safetensors", "--model", "model.safetensors"], "are given together"),
        (["site0.safetensors", "--model", "no.safetensors", "--new-model", "n"], "no.safetensors: No such file"),
        (["site0.safetensors", "--model", "bad.safetensors", "--new-model", "n"], "cannot be read as a model's"),
        (["site0.safetensors", "--model", "site1.safetensors", "--new-model", "n"], "in the model it is absent"),
        (["site0.safetensors", "--out", "site0.safetensors"], "none that is read"),
        (["site0.safetensors", "--model", "model.safetensors", "--new-model", "out"], "none that is read"),
        ([], "Missing argument"),
    ],
)
def test_a_mistake_is_told_in_one_line_and_leaves_nothing(arguments, words, altmin, files, capsys):  # noqa: F811
    Path("bad.safetensors").write_bytes(b"nothing")
    before = {path.name: path.read_bytes() for path in Path().iterdir()}
    assert altmin("merge", "--out", "out", *arguments) == 2
    told = capsys.readouterr().err
    assert words in told
    assert told.count("\n") == 1
    assert {path.name: path.read_bytes() for path in Path().iterdir()} == before
