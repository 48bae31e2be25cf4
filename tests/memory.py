"""How much memory this process takes at most in a block, by the account of Linux; elsewhere nothing is measured.

Not by tracemalloc: to stop it while another thread allocates can crash the interpreter (CPython issue 128679).
"""

from pathlib import Path

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def _status(name: str) -> int:
    """A number of the process in bytes, such as its `VmRSS`; 0 where there is no such account."""
    lines = STATUS.read_text().splitlines() if CLEAR.exists() else []
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), 0)


def restart_peak() -> int:
    """Measure the peak from now on; returns the memory held now."""
    if CLEAR.exists():
        CLEAR.write_text("5")
    return _status("VmRSS")


def peak() -> int:
    """The most memory held since `restart_peak`."""
    return _status("VmHWM")
