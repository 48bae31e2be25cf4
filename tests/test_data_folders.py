"""The data folder, the user's cache, and folders that are read-only."""

import pytest

from altmin.data.folders import cache_folder, data_folder, prepare, writable


def test_data_folder_is_argument_then_environment_then_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("ALTMIN_DATA", raising=False)
    assert data_folder() == cache_folder() == tmp_path / "cache" / "altmin"
    monkeypatch.setenv("ALTMIN_DATA", str(tmp_path / "env"))
    assert data_folder() == tmp_path / "env"
    assert data_folder(tmp_path) == data_folder(str(tmp_path)) == tmp_path
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "altmin"


def test_a_folder_without_write_bits_is_left_alone_even_by_root(tmp_path):
    assert writable(tmp_path)
    locked = tmp_path / "locked"
    locked.mkdir()
    locked.chmod(0o555)
    assert not writable(locked)
    with pytest.raises(PermissionError, match="locked, which is read-only; choose another"):
        prepare(locked / "new" / "folder")
    assert not (locked / "new").exists()
