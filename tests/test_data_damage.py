"""Checksums by their published examples, and what is said of a damaged file."""

import hashlib
from pathlib import Path

import pytest

from altmin.data.damage import Damaged, digest, expect, md5, sha256

ABC = "900150983cd24fb0d6963f7d28e17f72"  # the md5 of "abc", from RFC 1321


def test_the_md5_is_that_of_the_standard() -> None:
    assert md5(b"abc") == ABC
    assert md5(b"") == "d41d8cd98f00b204e9800998ecf8427e"


def test_the_sha256_is_that_of_the_standard() -> None:
    assert sha256(b"abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # FIPS 180


def test_the_digest_of_a_file_is_that_of_its_bytes(tmp_path: Path) -> None:
    content = bytes(range(256)) * 5000
    path = tmp_path / "file"
    path.write_bytes(content)
    assert digest(path, "md5") == md5(content)
    assert digest(path, "sha256") == hashlib.sha256(content).hexdigest()


def test_another_checksum_than_expected_names_the_file_both_sums_and_a_remedy() -> None:
    expect(Path("data.gz"), "md5", ABC, ABC)
    with pytest.raises(Damaged) as caught:
        expect(Path("data.gz"), "md5", ABC, "0" * 32)
    said = f"data.gz is damaged: its content has md5 {ABC}, expected {'0' * 32}; replace it with an undamaged copy"
    assert str(caught.value) == said
    assert caught.value.path == Path("data.gz")
    assert isinstance(caught.value, ValueError)
