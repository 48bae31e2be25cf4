"""`altmin data` as it is typed: in a pipe, with files missing, and with files damaged."""

import json
import os

import pytest
from typer.testing import CliRunner

import altmin.data
from altmin.cli.data import app

run = CliRunner().invoke


@pytest.fixture(autouse=True)
def no_data(monkeypatch, tmp_path):
    monkeypatch.setenv("ALTMIN_DATA", str(tmp_path))


def rows(result):
    head, *lines = (line.split("\t") for line in result.output.splitlines())
    return {line[0]: dict(zip(head, line, strict=True)) for line in lines}


def test_list_in_a_pipe_is_a_line_of_fields_for_each_set(tmp_path):
    result = run(app, ["list", "--json", str(tmp_path / "list.json")])
    assert result.exit_code == 0
    listed = rows(result)
    assert list(listed) == altmin.data.names()
    states = ["embedded", "embedded", "embedded", "embedded", "missing", "missing", "missing", "embedded"]
    assert [listed[name]["state"] for name in listed] == states
    assert [listed["cifar10"][split] for split in altmin.data.SPLITS] == ["40000", "10000", "10000"]
    assert (listed["higgs"]["shape"], listed["higgs"]["classes"]) == ("28", "2")
    assert listed["mnist"]["licence"].startswith("CC BY-SA 3.0")
    written = json.loads((tmp_path / "list.json").read_text())
    assert [each["name"] for each in written] == altmin.data.names()
    assert written[0]["splits"] == {"train": 50_000, "validation": 10_000, "test": 10_000}
    assert written[5]["sample_shape"] == [3, 32, 32]


@pytest.mark.parametrize("command", ["list", "verify"])
def test_a_pipe_is_written_to_and_not_replaced(command, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    assert run(app, [command, "--json", str(tmp_path / "pipe")]).exit_code == 0
    assert json.loads(os.read(reader, 1 << 16))[0]["name"] == "mnist"
    os.close(reader)
    assert (tmp_path / "pipe").is_fifo()


def test_list_tells_the_rows_of_a_partial_file(tmp_path):
    folder = tmp_path / "elsewhere" / "higgs"
    folder.mkdir(parents=True)
    (folder / "HIGGS-1000.csv.gz").touch()
    listed = rows(run(app, ["list", "--data-dir", str(tmp_path / "elsewhere")]))["higgs"]
    assert (listed["state"], listed["where"]) == ("partial", str(folder / "HIGGS-1000.csv.gz"))
    assert [listed[split] for split in altmin.data.SPLITS] == ["800", "100", "100"]


def test_list_on_a_terminal_is_a_table_that_hides_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    odd = tmp_path / "[red]odd"
    result = run(app, ["list", "--data-dir", str(odd)])
    assert "┃" in result.output
    assert "[red]odd" in result.output
    assert all(altmin.data.dataset(name).url in result.output for name in altmin.data.names())


def test_verify_without_a_name_checks_what_is_there(tmp_path):
    result = run(app, ["verify", "--json", str(tmp_path / "verified.json")])
    assert result.exit_code == 0
    checks = json.loads((tmp_path / "verified.json").read_text())
    assert [(check["name"], check["state"]) for check in checks] == [
        *[("mnist", "sound")] * 4,
        *[("mnist-sequential", "sound")] * 4,
        *[("mnist-permuted", "sound")] * 4,
        *[("mnist-rows", "sound")] * 4,
        ("shakespeare", "sound"),
    ]
    assert checks[0]["detail"] == "sha256 ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"


def test_verify_names_a_damaged_file_and_exits_with_one(tmp_path):
    path = tmp_path / "fashion-mnist" / "train-images-idx3-ubyte.gz"
    path.parent.mkdir()
    path.write_bytes(b"spoilt")
    result = run(app, ["verify", "fashion-mnist"])
    assert result.exit_code == 1
    first, *others = result.output.splitlines()[1:]
    assert first.split("\t")[:3] == ["fashion-mnist", "damaged", str(path)]
    assert "altmin data fetch fashion-mnist" in first
    assert [line.split("\t")[1] for line in others] == ["missing"] * 3


def test_verify_of_a_missing_set_says_how_to_get_it(tmp_path):
    result = run(app, ["verify", "cifar10"])
    assert isinstance(result.exception, FileNotFoundError)
    assert "altmin data fetch cifar10" in str(result.exception)


def test_fetch_has_nothing_to_do_for_the_embedded_set():
    result = run(app, ["fetch", "mnist"])
    assert (result.exit_code, result.output) == (0, "mnist comes with altmin: nothing to fetch\n")


def test_fetch_says_what_it_did(monkeypatch, tmp_path):
    monkeypatch.setattr(altmin.data, "fetch", lambda name, data_dir: [tmp_path / "file"])
    assert run(app, ["fetch", "cifar10"]).output == f"fetched and verified {tmp_path / 'file'}\n"
    monkeypatch.setattr(altmin.data, "fetch", lambda name, data_dir: [])
    assert run(app, ["fetch", "cifar10"]).output.endswith("and sound\n")


@pytest.mark.parametrize("command", [["fetch", "cifar"], ["verify", "cifar"]])
def test_unknown_names_are_answered_with_the_nearest(command):
    result = run(app, command)
    assert isinstance(result.exception, ValueError)
    assert "did you mean 'cifar10'?" in str(result.exception)


@pytest.mark.parametrize("command", ["list", "fetch", "verify"])
def test_help_gives_an_example(command):
    result = run(app, [command, "--help"])
    assert f"altmin data {command}" in result.output
    assert "--data-dir" in result.output


def test_shards_are_made_of_a_text(tmp_path):
    pytest.importorskip("pyarrow")
    (tmp_path / "t.csv").write_text("1,0.5,2\n0,1.5,3\n1,2.5,4\n")
    result = run(app, ["shards", str(tmp_path / "t.csv"), str(tmp_path / "s"), "--rows", "2"])
    assert result.exit_code == 0
    assert f"wrote 3 rows in 2 shards to {tmp_path / 's'}" in result.output.replace("\n", "")
    x, y = altmin.data.Shards(tmp_path / "s").rows([2, 0])
    assert (x.tolist(), y.tolist()) == ([[2.5, 4], [0.5, 2]], [1, 1])
