"""The tour."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TOUR = Path(__file__).parent.parent / "examples" / "tour.py"


def test_the_tour_runs_on_the_data(tmp_path: Path) -> None:
    data = os.environ.get("BOLIDE_DATA", str(Path(__file__).parents[4] / "shared" / "data"))
    if not (Path(data) / "sample" / "posts.ndjson").exists():
        pytest.skip("the data are absent: BOLIDE_DATA names their directory")
    plot = tmp_path / "plot.png"
    command = [sys.executable, str(TOUR), data, "--rows", "5000", "--plot", str(plot)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "5000 posts" in done.stdout and "6. A plot" in done.stdout
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_the_tour_is_skipped_without_data(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, str(TOUR), str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "the tour is skipped" in done.stdout
