"""The comparison with other stores runs, with very few records, and its tables go into a document."""

import json
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "benchmarks"


def test_the_comparison_runs(tmp_path: Path) -> None:
    results, document = tmp_path / "results.json", tmp_path / "document.md"
    command = [sys.executable, FOLDER / "compare.py", "--records", "500", "--rounds", "1", "--seconds", "0.01"]
    subprocess.run(
        [*command, "--stores", "bolide", "sqlite3", "duckdb", "--out", results], check=True, timeout=120, capture_output=True
    )
    measured = json.loads(results.read_text())["measured"]
    assert set(measured) == {"import", "get", "put", "newest", "range", "arrow of 3 columns", "arrow of all columns"}
    assert set(measured["get"]) == {"bolide", "sqlite3", "duckdb"} and set(measured["arrow of 3 columns"]) == {"bolide", "duckdb"}
    document.write_text("before\n<!-- begin of the measurements -->\nold\n<!-- end of the measurements -->\nafter\n")
    for _ in range(2):
        subprocess.run([sys.executable, FOLDER / "report.py", results, "--into", document], check=True, timeout=60)
        text = document.read_text()
        assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text
        assert text.count("### Get of a record as bytes") == 1
