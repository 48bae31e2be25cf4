"""Freed memory, and what the C library does with it."""

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Options of mallopt, from glibc's malloc.h."""
LARGEST = 2**30
MOST_OF_OLD = 2**25
"""Largest M_MMAP_THRESHOLD of older versions of glibc."""


def keep_freed_memory() -> bool:
    """Let this process keep memory that it frees instead of returning it to Linux, which would hand it out again page
    by page, each filled with zeros: a training step frees and takes the same large tensors over and over. The process
    stays as large as it ever was. Return whether it could be set, which takes glibc."""
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    success = bool(mallopt(M_TRIM_THRESHOLD, LARGEST))
    return success and any(mallopt(M_MMAP_THRESHOLD, most) for most in (LARGEST, MOST_OF_OLD))
