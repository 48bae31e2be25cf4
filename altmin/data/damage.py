"""Files that are not what they should be, and the checksums that tell."""

import hashlib
from pathlib import Path

BLOCK = 1 << 20


class Damaged(ValueError):
    """A data file that must not be used: which one, what is wrong with it, how to mend it."""

    def __init__(self, path: Path, what: str, mend: str = "replace it with an undamaged copy"):
        super().__init__(f"{path} is damaged: {what}; {mend}")
        self.path, self.what = path, what


def digest(path: Path, algorithm: str) -> str:
    """The checksum of a file, read in blocks so that its size does not matter."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def expect(path: Path, algorithm: str, found: str, expected: str) -> None:
    """Refuse `path` unless its checksum is the published one."""
    if found != expected:
        raise Damaged(path, f"its content has {algorithm} {found}, expected {expected}")


def md5(content: bytes) -> str:
    """The md5 under which the data sets were published: a guard against accidents, not against malice."""
    return hashlib.md5(content, usedforsecurity=False).hexdigest()
