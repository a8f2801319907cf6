"""Tables of the measurements of compare.py, on the terminal or between the marks of a document."""

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

BEGIN, END = "<!-- begin of the measurements -->", "<!-- end of the measurements -->"

#: Operation, its title, the unit, and the value of a measurement in it.
OPERATIONS = [
    ("import", "import of all records with the index", "rows/s"),
    ("get", "get of a record as bytes", "µs"),
    ("put", "put of a record with the index", "µs"),
    ("newest", "the newest 10 records of an author, as dicts", "µs"),
    ("range", "100 records in key order as bytes", "µs"),
    ("arrow of 3 columns", "3 of 11 columns of all records as Arrow", "GB/s of JSON"),
    ("arrow of all columns", "all columns of all records as Arrow", "GB/s of JSON"),
]
GOALS = {
    "get": "≤ 1.3 × lmdb", "newest": "≤ sqlite3", "import": "≥ 300,000 rows/s", "arrow of 3 columns": "≥ 1 GB/s",
    "arrow of all columns": "≥ 0.5 GB/s",
}  # fmt: skip


def value(measurement: dict[str, float], unit: str, clock: str) -> float:
    seconds, units = max(measurement[clock], 1e-9), measurement["units"]
    match unit:
        case "µs":
            return 1e6 * seconds / units
        case "rows/s":
            return units / seconds
        case _:
            return units / seconds / 1e9


def shown(number: float) -> str:
    return f"{number:,.0f}" if number >= 1_000 else f"{number:.3g}"


def spread(values: list[float]) -> str:
    return f"{shown(min(values))} to {shown(max(values))}"


def table_of(results: dict[str, Any], operation: str, title: str, unit: str) -> list[str]:
    measured = results["measured"].get(operation)
    if not measured:
        return []
    goal = f" Goal: {GOALS[operation]}." if operation in GOALS else ""
    lines = [f"### {title[0].upper()}{title[1:]}", "", f"In {unit}.{goal}", ""]
    lines += ["| store | wall: median | spread | CPU: median | spread |", "|---|---|---|---|---|"]
    rows = []
    for store, measurements in measured.items():
        wall = [value(measurement, unit, "wall") for measurement in measurements]
        cpu = [value(measurement, unit, "cpu") for measurement in measurements]
        cells = [shown(statistics.median(wall)), spread(wall), shown(statistics.median(cpu)), spread(cpu)]
        order = statistics.median(wall) * (1 if unit == "µs" else -1)
        rows.append((order, f"| {store} | {' | '.join(cells)} |"))
    return lines + [row for _, row in sorted(rows)] + [""]


def tables(results: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    load = " ".join(f"{load:.2f}" for load in results["load"])
    lines = [
        f"{results['records']:,} records of {results['bytes'] / results['records']:.0f} bytes, {results['rounds']} rounds of "
        f"{results['seconds']} s for each operation, seed {results['seed']}. {results['cores']} cores, load at the end {load}, "
        f"{results['system']}, Python {results['python']}.",
        "",
        f"Versions: {versions}.",
        "",
    ]
    if results["missing"]:
        absent = "; ".join(f"{name} ({reason})" for name, reason in results["missing"].items())
        lines += [f"Not measured: {absent}.", ""]
    for operation in OPERATIONS:
        lines += table_of(results, *operation)
    lines += ["### Import of the module, and its size", "", "Goals: ≤ 10 ms, and a wheel of ≤ 6 MB.", ""]
    lines += ["| module | ms: median | spread | installed MB |", "|---|---|---|---|"]
    for name, seconds in results["import_of_module"].items():
        millis = [1_000 * second for second in seconds]
        size = results["installed_bytes"][name]
        installed = "in Python" if size is None else f"{size / 1e6:.1f}"
        lines.append(f"| {name} | {shown(statistics.median(millis))} | {spread(millis)} | {installed} |")
    if results["wheel_bytes"]:
        lines += ["", f"The wheel of Bolide has {results['wheel_bytes'] / 1e6:.1f} MB."]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results")
    parser.add_argument("--into", help="a document with the marks")
    arguments = parser.parse_args()
    text = tables(json.loads(Path(arguments.results).read_text()))
    if arguments.into is None:
        print(text)
        return
    document = Path(arguments.into).read_text()
    before, _, rest = document.partition(BEGIN)
    _, _, after = rest.partition(END)
    if not rest or END not in rest:
        raise SystemExit(f"{arguments.into} has no marks {BEGIN} and {END}")
    Path(arguments.into).write_text(f"{before}{BEGIN}\n\n{text}\n{END}{after}")


if __name__ == "__main__":
    main()
