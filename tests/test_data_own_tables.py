"""A table of one's own: classes or numbers, which rows are held back, and that only the others are learnt from."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from altmin.data.arrays import Arrays
from altmin.data.tables import Choices, Encoding, TableData, split_rows
from altmin.data.targets import Classes, Quantity, are_classes


def objects(*values: object) -> np.ndarray:
    return np.array(values, dtype=object)


@pytest.mark.parametrize(
    "values, expected",
    [
        (objects("a", "b"), True),
        (np.array([True, False]), True),
        (np.array([0, 1, 1, 0, 2, 2]), True),
        (np.array([1.0, 2.0, 1.0, 2.0]), True),
        (np.array([1.5, 2.0, 1.0, 2.0]), False),
        (np.arange(30).repeat(3), False),
        (np.arange(6), False),
    ],
)
def test_texts_and_few_whole_numbers_are_classes(values: np.ndarray, expected: bool) -> None:
    assert are_classes(values) is expected
    assert are_classes(values, "classification")
    assert not are_classes(values, "regression")


def test_classes_have_their_names_back_and_numbers_their_unit() -> None:
    classes = Classes.fit("y", np.array([10.0, 9.0, 10.0, 2.0]))
    assert classes.names == ["2", "9", "10"]
    np.testing.assert_array_equal(classes.encode("y", np.array([9, 10, 2])), [1, 2, 0])
    assert classes.decode(np.array([[0.1, 0.3, 0.2]])).tolist() == ["9"]
    quantity = Quantity.fit("y", np.array([1e4, 3e4]))
    np.testing.assert_array_equal(quantity.encode("y", np.array([1e4, 3e4])), [[-1], [1]])
    np.testing.assert_array_equal(quantity.decode(np.array([[0.0], [2.0]])), [2e4, 4e4])


@pytest.mark.parametrize("validation", [False, True])
def test_every_class_has_its_share_of_the_rows_held_back(validation: bool) -> None:
    strata = np.array([0] * 60 + [1] * 30 + [2] * 10)
    parts = split_rows(strata, 0.2, 7, validation)
    assert sorted(np.concatenate(list(parts.values())).tolist()) == list(range(100))
    assert np.bincount(strata[parts["test"]]).tolist() == [12, 6, 2]
    if validation:
        assert all(abs(np.bincount(strata[parts["validation"]], minlength=3) - [12, 6, 2]) <= 1)
        np.testing.assert_array_equal(parts["test"], split_rows(strata, 0.2, 7)["test"])
    assert not np.array_equal(parts["test"], split_rows(strata, 0.2, 8, validation)["test"])
    assert len(np.unique(strata[parts["train"]][:30])) == 3, "the first rows are not of one class"


def written(path: Path, rows: int = 50) -> Path:
    lines = [f"{n},{'ab'[n % 2]},{n * 100.0 + 0.5}" for n in range(rows)]
    path.write_text("n,kind,y\n" + "\n".join(lines) + "\n")
    return path


def test_means_and_categories_are_those_of_the_training_rows_alone(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv")
    data = TableData.read(path, Choices("y"))
    rows = data.parts["train"]
    x, y = data.load("train")
    torch.testing.assert_close(x[:, 0].mean(), torch.tensor(0.0), atol=1e-6, rtol=0)
    target = data.encoding.target
    assert isinstance(target, Quantity)
    assert target.mean == pytest.approx((rows * 100.0 + 0.5).mean())
    torch.testing.assert_close(y[:, 0].var(correction=0), torch.tensor(1.0))

    lines = path.read_text().splitlines()
    for row in data.parts["test"]:  # other test rows, with a category of their own
        lines[1 + row] = "1000000,c,1e9"
    path.write_text("\n".join(lines) + "\n")
    other = TableData.read(path, Choices("y"))
    assert other.encoding == data.encoding
    torch.testing.assert_close(other.load("train"), data.load("train"), atol=0, rtol=0)


def test_rows_without_a_target_and_columns_dropped_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("id,a,y\n" + "".join(f"u{n},{n},{'' if n < 3 else ['no', 'yes'][n % 2]}\n" for n in range(30)))
    with pytest.warns(UserWarning, match="3 rows without a value of 'y', the --target, are left out"):
        data = TableData.read(path, Choices("y", drop=["id"]))
    assert sum(map(len, data.parts.values())) == 27
    assert data.sample_shape == (1,)
    assert data.classes == 2


def test_the_encoding_passes_through_json(tmp_path: Path) -> None:
    encoding = TableData.read(written(tmp_path / "t.csv"), Choices("kind")).encoding
    assert Encoding.from_json(json.loads(json.dumps(encoding.to_json()))) == encoding
    arrays = Encoding(Arrays((1, 2), [0.5], [2.0]), Quantity(1.0, 2.0), "y")
    assert Encoding.from_json(json.loads(json.dumps(arrays.to_json()))) == arrays
    for wrong in (None, {}, {"columns": 3, "target": {}, "target_name": "y"}, {"array": {}, "target": 0}):
        with pytest.raises(ValueError, match="no "):
            Encoding.from_json(wrong)


def test_images_are_standardised_by_channel_and_keep_their_shape(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(40, 2, 3, 3)) * np.array([1, 50])[:, None, None] + np.array([0, 7])[:, None, None]
    np.savez(tmp_path / "t.npz", x=x, y=np.arange(40) % 2)
    data = TableData.read(tmp_path / "t.npz", Choices())
    found, _ = data.load("train")
    assert found.shape == (32, 2, 3, 3)
    torch.testing.assert_close(found.mean((0, 2, 3)), torch.zeros(2), atol=1e-5, rtol=0)
    torch.testing.assert_close(found.std((0, 2, 3), correction=0), torch.ones(2))
    with pytest.raises(ValueError, match=r"an array x of \(rows, 2, 3, 3\), given x of \(40, 18\)"):
        data.encoding.samples({"x": x.reshape(40, -1)})
    x[3, 0, 0, 0] = np.nan
    with pytest.raises(ValueError, match="missing or infinite in row 3"):
        data.encoding.samples({"x": x})


@pytest.mark.parametrize(
    "content, choices, words",
    [
        ("a,y\n1,x\n2,z\n", Choices(), "--target names the column of .* to predict, one of: a, y"),
        ("a,y\n1,x\n2,z\n", Choices("Y"), "unknown column of --target, 'Y'"),
        ("a,y\n1,x\n2,z\n", Choices("y", drop=["b"]), "unknown column of --drop, 'b'"),
        ("a,y\n1,x\n2,z\n", Choices("y", drop=["y"]), "--drop leaves out 'y', which is the --target"),
        ("a,y\n1,x\n2,z\n", Choices("y", "regresion"), "unknown task 'regresion'; did you mean 'regression'"),
        ("a,y\n1,5\n2,x\n", Choices("y", "regression"), "column 'y' has 'x' in row 2, where numbers are expected"),
        ("a,y\n1,x\n2,x\n", Choices("y"), "column 'y' has one class, 'x'"),
        ("a,y\n1,2\n2,2\n3,2\n", Choices("y", "regression"), "column 'y' is 2 in every row"),
        ("a,y\n1,\n2,\n", Choices("y"), "column 'y', the --target, has no value in any row"),
        ("a,y\n1,2.5\n", Choices("y"), "the table has 1 row with a target, too few"),
        ("a,y\n1,x\ninf,z\n", Choices("y"), "column 'a' has an infinite number in row 2"),
        ("a,y\n" + "".join(f"1,w{n}\n" for n in range(50)), Choices("y"), "50 classes in 50 rows"),
    ],
)
def test_a_table_from_which_nothing_can_be_learnt_gets_a_sentence(
    content: str, choices: Choices, words: str, tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_text(content)
    with pytest.raises(ValueError, match=words):
        TableData.read(tmp_path / "t.csv", choices)


def test_a_label_that_training_did_not_have_is_named() -> None:
    with pytest.raises(ValueError, match="column 'y' has 'c' in row 2, which is no class of: a, b"):
        Classes(["a", "b"]).encode("y", objects("a", "c"))
    with pytest.raises(ValueError, match="column 'y' has no value in row 1"):
        Quantity(0.0, 1.0).encode("y", np.array([np.nan]))
