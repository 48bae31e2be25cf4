"""The data folder, and where caches may be written."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """The user's cache folder: `$XDG_CACHE_HOME/altmin`, else `~/.cache/altmin`. It need not exist."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").expanduser() / "altmin"


def data_folder(data_dir: str | os.PathLike[str] | None = None) -> Path:
    """The data folder: `data_dir`, else `$ALTMIN_DATA`, else the user's cache folder. It need not exist."""
    given = data_dir or os.environ.get("ALTMIN_DATA")
    return Path(given).expanduser() if given else cache_folder()


def writable(folder: Path) -> bool:
    """Whether files may be written in `folder`.

    A folder without any write bit counts as read-only for the superuser too, although the operating system would allow
    it.
    """
    return folder.is_dir() and bool(folder.stat().st_mode & 0o222) and os.access(folder, os.W_OK)


def prepare(folder: Path) -> None:
    """Make `folder` and its parents. Raises PermissionError if that would write into a read-only folder."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if not writable(there):
        choose = "choose another data folder with --data-dir or $ALTMIN_DATA"
        raise PermissionError(f"cannot write to {there}, which is read-only; {choose}")
    folder.mkdir(parents=True, exist_ok=True)
