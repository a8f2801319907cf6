"""Measures Bolide and its peers in one run, by turns, and writes all measurements as JSON.

A round measures each operation once with each store, in a new order, so that a slower moment of the machine meets all of
them. Wall time is that of the calls; CPU time is that of the process with its threads, so it includes what a store does
in the background meanwhile.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from records import Posts, key_of
from stores import NEWEST, RANGE, STORES, Store


def timed(work: Callable[[], int]) -> dict[str, float]:
    """Wall and CPU seconds of ``work``, which returns the number of its units."""
    wall, cpu = time.perf_counter(), time.process_time()
    units = work()
    return {"units": units, "wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}


def repeated(call: Callable[[], object], seconds: float) -> Callable[[], int]:
    """Calls ``call`` for about ``seconds``; the clock is read every few calls."""

    def work() -> int:
        end, calls, step = time.perf_counter() + seconds, 0, 1
        while time.perf_counter() < end:
            for _ in range(step):
                call()
            calls += step
            step = min(64, 2 * step)
        return calls

    return work


class Turns:
    """The operations on opened stores."""

    def __init__(self, posts: Posts, seconds: float, source: random.Random) -> None:
        self.posts, self.seconds, self.source = posts, seconds, source

    def operations(self, store: Store) -> dict[str, Callable[[], int]]:
        posts, source = self.posts, self.source

        def get() -> None:
            number = source.randrange(posts.count)
            assert len(store.get(key_of(number))) > 100

        def put() -> None:
            number = source.randrange(posts.count)
            store.put(key_of(number), posts.texts[number], posts.records[number]["author"])

        def newest() -> None:
            found = store.newest(f"author-{source.randrange(posts.authors)}")
            assert len(found) <= NEWEST

        def scan() -> None:
            store.range(key_of(source.randrange(max(1, posts.count - RANGE))))

        calls = {"get": get, "newest": newest, "range": scan, "put": put}
        found = {name: repeated(call, self.seconds) for name, call in calls.items()}
        for name, scan_of_all in (("arrow of 3 columns", store.arrow_three), ("arrow of all columns", store.arrow_all)):
            if scan_of_all is not None:
                found[name] = self.scanned(scan_of_all)
        return found

    def scanned(self, scan_of_all: Callable[[], int]) -> Callable[[], int]:
        def work() -> int:
            rows = scan_of_all()
            assert rows == self.posts.count, rows
            return self.posts.bytes

        return work


def import_seconds(module: str, rounds: int) -> list[float]:
    """Seconds of the first import of a module in a new process, beside those of the interpreter without it."""
    program = f"import time; t = time.perf_counter(); import {module}; print(time.perf_counter() - t)"
    return [
        float(subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True).stdout)
        for _ in range(rounds)
    ]


def installed_bytes(module: str) -> int | None:
    """Bytes of the files of an installed package; None for a module of the interpreter."""
    try:
        files = importlib.metadata.files(module) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    return sum(os.path.getsize(file.locate()) for file in files if os.path.exists(file.locate()))


def version_of(module: str) -> str:
    if module == "sqlite3":
        import sqlite3

        return sqlite3.sqlite_version
    return importlib.metadata.version(module)


def available(names: list[str] | None) -> tuple[list[type[Store]], dict[str, str]]:
    """The stores whose modules can be imported, and why the others cannot."""
    found, missing = [], {}
    for store in STORES:
        if names and store.name not in names:
            continue
        try:
            importlib.import_module(store.module)
            found.append(store)
        except ImportError as error:
            missing[store.name] = str(error)
    return found, missing


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each operation in each round")
    parser.add_argument("--stores", nargs="*", help="names; all by default")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dir", help="for the data; a new folder in the one for temporary files by default")
    parser.add_argument("--out", default="results.json")
    arguments = parser.parse_args()
    source = random.Random(arguments.seed)
    posts = Posts(arguments.records, arguments.seed)
    stores, missing = available(arguments.stores)
    folder = Path(arguments.dir or tempfile.mkdtemp(prefix="bolide-compare-"))
    measured: dict[str, dict[str, list[dict[str, float]]]] = {}
    failures: dict[str, str] = {}

    def note(operation: str, store: Store, measurement: dict[str, float]) -> None:
        measured.setdefault(operation, {}).setdefault(store.name, []).append(measurement)

    opened: list[Store] = []
    # The import is measured in as many rounds as the time permits: three.
    for round in range(min(3, arguments.rounds)):
        for make in source.sample(stores, len(stores)):
            if make.name in failures:
                continue
            try:
                store = make(folder / f"{make.name}-{round}")
                note("import", store, timed(lambda: store.load(posts) or posts.count))
                store.settle()
            except Exception as error:
                failures[make.name] = f"{type(error).__name__}: {error}"
                continue
            if round < min(3, arguments.rounds) - 1:
                store.close()
                shutil.rmtree(store.path)
            else:
                opened.append(store)
            print(f"import into {make.name}: round {round + 1}", file=sys.stderr)
    turns = Turns(posts, arguments.seconds, source)
    for round in range(arguments.rounds):
        by_operation: dict[str, list[tuple[Store, Callable[[], int]]]] = {}
        for store in source.sample(opened, len(opened)):
            for operation, work in turns.operations(store).items():
                by_operation.setdefault(operation, []).append((store, work))
        # Streams before puts, which change the records of the stores at different speeds.
        for operation, pairs in sorted(by_operation.items()):
            for store, work in pairs:
                note(operation, store, timed(work))
        print(f"round {round + 1} of {arguments.rounds}", file=sys.stderr)
    for store in opened:
        store.close()
    if arguments.dir is None:
        shutil.rmtree(folder)
    modules = {store.name: store.module for store in stores}
    results: dict[str, Any] = {
        "records": posts.count, "bytes": posts.bytes, "rounds": arguments.rounds, "seconds": arguments.seconds,
        "seed": arguments.seed, "machine": platform.processor() or platform.machine(), "cores": os.cpu_count(),
        "load": os.getloadavg(), "python": platform.python_version(), "system": platform.platform(),
        "versions": {name: version_of(module) for name, module in modules.items()},
        "missing": {**missing, **failures}, "measured": measured,
        "import_of_module": {
            store.name: import_seconds(store.imported or store.module, arguments.rounds) for store in stores
        },
        "installed_bytes": {name: installed_bytes(module) for name, module in modules.items()},
        "wheel_bytes": wheel_bytes(),
    }  # fmt: skip
    Path(arguments.out).write_text(json.dumps(results, indent=1) + "\n")


def wheel_bytes() -> int | None:
    """Bytes of the wheel that `develop` has installed, as it noted them."""
    noted = Path(__file__).parent.parent / ".venv" / "wheel-bytes"
    return int(noted.read_text()) if noted.exists() else None


if __name__ == "__main__":
    main()
