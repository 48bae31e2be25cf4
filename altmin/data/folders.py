"""Where the data lie, and where what is derived from them may be written."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """The user's own cache, which is writable: `$XDG_CACHE_HOME/altmin` or `~/.cache/altmin`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").expanduser() / "altmin"


def data_folder(data_dir: str | os.PathLike[str] | None = None) -> Path:
    """The data folder: the one given, else `$ALTMIN_DATA`, else the user's cache."""
    given = data_dir or os.environ.get("ALTMIN_DATA")
    return Path(given).expanduser() if given else cache_folder()


def writable(folder: Path) -> bool:
    """Whether to write in `folder`.

    A folder without any write bit was set apart as read-only, and that is respected even for the
    superuser, whom the operating system would not stop.
    """
    return folder.is_dir() and bool(folder.stat().st_mode & 0o222) and os.access(folder, os.W_OK)


def prepare(folder: Path) -> None:
    """Make `folder`, or say in a sentence why nothing can be put there."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if not writable(there):
        choose = "choose another data folder with --data-dir or $ALTMIN_DATA"
        raise PermissionError(f"cannot write to {there}, which is read-only; {choose}")
    folder.mkdir(parents=True, exist_ok=True)
