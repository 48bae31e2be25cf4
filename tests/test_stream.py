"""The package imports river, the rest of altmin does not; without river one sentence says what to install."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_altmin_does_not_import_river_and_its_streams_say_how_to_install_it() -> None:
    script = "import sys, altmin; print('river' in sys.modules); sys.modules['river'] = None; import altmin.stream"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=False)
    assert ended.stdout == "False\n"
    assert ended.returncode == 1
    last = ended.stderr.strip().splitlines()[-1]
    sentence = 'altmin.stream needs river, which is not installed: pip install "altmin[stream]"'
    assert last == f"ModuleNotFoundError: {sentence}"
