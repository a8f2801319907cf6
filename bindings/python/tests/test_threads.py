"""Threads, forks, kills, signals and memory."""

import gc
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Iterator

import pyarrow as pa
import pytest

import bolide


@pytest.fixture
def short_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def run_all(functions: list) -> None:
    errors: list[BaseException] = []

    def guarded(function) -> None:
        try:
            function()
        except BaseException as error:
            errors.append(error)

    # A thread that hangs does not keep the process.
    threads = [threading.Thread(target=guarded, args=(function,), daemon=True) for function in functions]
    for thread in threads:
        thread.start()
    end = time.monotonic() + 120
    for thread in threads:
        thread.join(timeout=max(0, end - time.monotonic()))
        assert not thread.is_alive(), "a thread hangs"
    assert errors == []


def test_readers_and_writers(db: bolide.Db, short_switches: None) -> None:
    c = db.create_collection("c", indexes=["g", "n:composite"])
    end = time.monotonic() + 4
    writes = [0] * 4

    def writer(own: int) -> None:
        source = random.Random(own)
        while time.monotonic() < end:
            key = (own, source.randrange(50))
            if source.randrange(4):
                c[f"{key}"] = {"g": own, "n": source.randrange(10)}
            else:
                c.delete(f"{key}")
            with db.batch() as batch:
                batch.put(c, f"{own}-both-1", {"g": own, "n": writes[own]})
                batch.put(c, f"{own}-both-2", {"g": own, "n": writes[own]})
            writes[own] += 1

    def reader() -> None:
        while time.monotonic() < end:
            with db.snapshot() as snap:
                pairs = {key: record["n"] for key, record in c.items(at=snap) if "both" in key}
                for own in range(4):
                    assert pairs.get(f"{own}-both-1") == pairs.get(f"{own}-both-2")
                found = {answer.key for answer in c.find(g=1, at=snap)}
                assert found == {key for key, record in c.items(at=snap) if record["g"] == 1}
            pa.table(c.arrow(columns={"n": "int64"}))
            c.count(g=2), c.get("x"), c.multi_get(["a", "b"])

    run_all([lambda own=own: writer(own) for own in range(4)] + [reader] * 4)
    assert all(writes) and db.check(deep=True)


def test_one_iterator_is_shared_by_threads(db: bolide.Db, short_switches: None) -> None:
    c = db.create_collection("c", indexes=["g"])
    c.put_many((n, {"g": 1}) for n in range(5_000))
    for make in (lambda: c.keys(), lambda: (answer.key for answer in ()), lambda: c.find(g=1)):
        iterator = make()
        found: list = []

        def read() -> None:
            while True:
                try:
                    found.append(next(iterator))
                except StopIteration:
                    return

        if isinstance(iterator, (bolide.Records, bolide.Answers)):
            run_all([read] * 4)
            keys = [element if isinstance(element, int) else element.key for element in found]
            assert sorted(keys) == list(range(5_000))


def test_closing_while_others_use_the_database(path: Path, short_switches: None) -> None:
    for _ in range(20):
        db = bolide.open(path)
        c = db.create_collection("c", indexes=["g"], exist_ok=True)
        c.put_many((n, {"g": n % 3}) for n in range(600))
        started = threading.Barrier(5)

        def use() -> None:
            started.wait()
            try:
                while True:
                    c[1] = {"g": 1}
                    list(c.find(g=1)), list(c.items()), c.get(5)
                    pa.table(c.arrow(columns={"g": "int64"}))
                    with db.transaction() as tx:
                        tx.put(c, 2, {"g": 2})
            except bolide.Closed:
                pass
            except bolide.Conflict:
                pass
            except Exception as error:
                # pyarrow reports the end of a stream by errors of its own.
                if "closed" not in str(error):
                    raise

        def close() -> None:
            started.wait()
            time.sleep(0.01)
            db.close()

        run_all([use] * 4 + [close])


def test_closing_waits_for_objects_that_are_dropped(path: Path, short_switches: None) -> None:
    for round in range(60):
        db = bolide.open(path)
        c = db.create_collection("c", indexes=["g"], exist_ok=True)
        c.put_many((n, {"g": 1}) for n in range(300))
        started = threading.Barrier(8)

        def use() -> None:
            started.wait()
            try:
                while True:
                    # All are dropped by this thread, some without being closed.
                    db.collection("c"), db.snapshot(), c.arrow(columns={"g": "int64"}).__arrow_c_stream__()
                    with c.keys() as keys, c.find(g=1) as answers:
                        next(keys), next(answers)
                    with db.snapshot() as snap:
                        c.get(1, at=snap)
                    db.transaction().rollback()
            except bolide.Closed:
                pass

        def commit() -> None:
            started.wait()
            try:
                while True:
                    with db.transaction(sync="always") as tx:
                        tx.put(c, 1, {"g": 1})
            except bolide.Closed:
                pass

        def build() -> None:
            started.wait()
            try:
                while True:
                    # The round before may have been closed in between.
                    if "x" in [index.name for index in c.indexes]:
                        c.drop_index("x")
                    c.create_index("x:composite")
            except bolide.Closed:
                pass

        def close() -> None:
            started.wait()
            time.sleep(0.002 * (round % 10))
            db.close()
            # The second call has waited for the first.
            assert db.closed and not bolide.has_writer(path)

        run_all([use] * 4 + [commit, build] + [close] * 2)


def test_an_iterator_that_another_thread_closes_ends(db: bolide.Db, short_switches: None) -> None:
    c = db.create_collection("c", indexes=["g"])
    c.put_many((n, {"g": 1}) for n in range(2_000))
    for _ in range(150):
        for iterator in (c.keys(), c.find(g=1)):
            started = threading.Barrier(4)

            def read() -> None:
                started.wait()
                for _ in iterator:
                    pass

            def close() -> None:
                started.wait()
                iterator.close()

            run_all([read] * 3 + [close])
            assert list(iterator) == []


def test_other_threads_run_while_one_waits(db: bolide.Db) -> None:
    c = db.create_collection("c")
    c.put_many((n, {"n": n, "t": "x" * 100}) for n in range(200_000))
    turns = 0
    is_done = threading.Event()

    def count() -> None:
        nonlocal turns
        while not is_done.is_set():
            turns += 1
            time.sleep(0.0005)

    thread = threading.Thread(target=count, daemon=True)
    thread.start()
    started = time.monotonic()
    c.summarize("n")
    elapsed = time.monotonic() - started
    during = turns
    is_done.set()
    thread.join(timeout=60)
    assert not thread.is_alive()
    assert during >= min(elapsed, 1) / 0.02, (during, elapsed)


def test_a_forked_child_fails_and_leaves_the_parent_alone(path: Path) -> None:
    program = f"""
import os, sys, warnings
warnings.simplefilter("ignore")
import bolide
db = bolide.open({str(path)!r})
c = db.create_collection("c", indexes=["g"])
c.put_many((n, {{"g": 1}}) for n in range(1000))
snap, items, answers, tx, stream = db.snapshot(), c.items(), c.find(g=1), db.transaction(), c.arrow()
next(items), next(answers)
db.flush()
db.checkpoint({str(path)!r} + "-copy")
child = os.fork()
if child == 0:
    uses = [lambda: c[1], lambda: c.put(1, {{}}), lambda: list(items), lambda: snap.sequence, lambda: tx.commit(),
            lambda: db.close(), lambda: db.collections, lambda: stream.__arrow_c_stream__(), lambda: c.find(g=1),
            lambda: db.batch(), lambda: db.check()]
    failed = 0
    for use in uses:
        try:
            use()
        except bolide.ForkError as error:
            failed += "spawn" in error.advice
    items.close(), answers.close()
    del c, snap, items, answers, tx, stream, uses, use, db
    for read_only in (False, True):
        try:
            bolide.open({str(path)!r} + "-copy", read_only=read_only)
        except bolide.ForkError as error:
            failed += "had a database open" in str(error)
    try:
        bolide.repair({str(path)!r} + "-copy", {str(path)!r} + "-repaired")
    except bolide.ForkError:
        failed += 1
    sys.exit(0 if failed == 14 else 1)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
assert len(list(items)) == 999 and c.count() == 1000
tx.put(c, 5000, {{"g": 2}})
tx.commit()
db.close()
with bolide.open({str(path)!r}) as db:
    assert db.check(deep=True).is_sound and db["c"][5000] == {{"g": 2}}
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_a_child_that_was_forked_beside_no_open_database_opens_one(path: Path) -> None:
    program = f"""
import os, bolide
with bolide.open({str(path)!r}) as db:
    db.create_collection("c")[1] = {{"n": 1}}
child = os.fork()
if child == 0:
    with bolide.open({str(path)!r}) as own:
        own["c"][2] = {{"n": 2}}
    os._exit(0)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
with bolide.open({str(path)!r}) as db:
    assert db["c"].count() == 2
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True, timeout=60)


KILLED = """
import sys, bolide, pyarrow as pa
db = bolide.open(sys.argv[1], sync="always", memtable_bytes=1 << 20)
c = db.create_collection("c", indexes=["g", "n:composite"], exist_ok=True)
print("ready", flush=True)
round = 0
while True:
    table = pa.table({"id": range(20_000), "g": [n % 7 for n in range(20_000)], "n": [round] * 20_000})
    c.import_arrow(table, key="id")
    round += 1
"""


def test_kill_during_import(path: Path) -> None:
    rounds = int(os.environ.get("BOLIDE_KILLS", "6"))
    seed = random.randrange(2**32)
    print("seed", seed)
    source = random.Random(seed)
    for _ in range(rounds):
        process = subprocess.Popen([sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        is_late = threading.Timer(60, process.kill)
        is_late.start()
        assert process.stdout.readline() == b"ready\n"
        is_late.cancel()
        time.sleep(source.uniform(0.05, 0.8))
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=60)
        process.stdout.close()
        with bolide.open(path) as db:
            report = db.check(deep=True)
            assert report.is_sound, report.problems
            c = db["c"]
            # Every record is one that was written whole.
            for key, record in c.items():
                assert record == {"id": key, "g": key % 7, "n": record["n"]}
            assert c.count(g=3) == sum(1 for record in c.values() if record["g"] == 3)


def test_interrupts_end_long_calls(path: Path) -> None:
    program = f"""
import os, signal, threading, time, bolide
db = bolide.open({str(path)!r})
c = db.create_collection("c")
def records():
    n = 0
    while True:
        yield n, {{"t": "x" * 1000}}
        n += 1
threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    c.put_many(records())
except KeyboardInterrupt:
    print("interrupted", c.count() >= 0)
db.close()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60, text=True)
    assert done.stdout == "interrupted True\n", done.stderr


def run_program(program: str, *arguments: object) -> str:
    """Runs ``program`` in a process of its own, which ends after a minute at the latest. Returns its output."""
    command = [sys.executable, "-W", "ignore", "-c", program, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, timeout=60, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


SIGNALS_IN_ITERATORS = """
import signal, sys, bolide
class Stop(Exception): pass
raised = caught = 0
armed = False
def handler(*_):
    global armed, raised
    if armed:
        armed = False
        raised += 1
        raise Stop
signal.signal(signal.SIGALRM, handler)
db = bolide.open(":memory:")
c = db.create_collection("c", indexes=["g"])
c.put_many((n, {"g": 1, "t": "x" * 1000}) for n in range(200))
# One pull reads all records, so that most signals come during the pull that reads the end.
signal.setitimer(signal.ITIMER_REAL, 0.0007, 0.0007)
makes = [c.keys, c.items, lambda: c.find(g=1), lambda: c.find(g=1, limit=100), lambda: c.find(g=1, limit=5000)]
for make in makes:
    before = raised
    while raised < before + 40:
        try:
            armed = True
            for _ in make():
                pass
            armed = False
        except Stop:
            caught += 1
signal.setitimer(signal.ITIMER_REAL, 0)
print(raised == caught, raised, caught)
"""


def test_exceptions_of_signal_handlers_are_not_lost() -> None:
    output = run_program(SIGNALS_IN_ITERATORS)
    assert output.startswith("True"), output


CLOSES_INSIDE_CALLS = """
import signal, sys, bolide, pyarrow as pa
outcomes = []
db = None
def close(*_):
    try:
        db.close()
        outcomes.append("closed")
    except bolide.Conflict as error:
        outcomes.append("refused")
        assert "inside a call" in str(error) and "returned" in error.advice
def closing(result):
    close()
    return result
def batches():
    schema = pa.schema([("id", pa.int64())])
    yield pa.record_batch([pa.array([1, 2])], schema)
    close()
    yield pa.record_batch([pa.array([3])], schema)
def stream():
    return pa.RecordBatchReader.from_batches(pa.schema([("id", pa.int64())]), batches())
def pairs():
    for n in range(20):
        yield n, {"g": 1}
    close()
    for n in range(20):
        yield n, {"g": 1}
class Number(float):
    def __str__(self):
        close()
        try:
            tx.commit()
        except bolide.Conflict:
            outcomes.append("not committed")
        except bolide.Closed:
            outcomes.append("lost")
        return "nan"
def put_of_transaction(c):
    global tx
    tx = db.transaction()
    try:
        tx.put(c, 1, {"n": Number("nan")})
    except bolide.InvalidInput:
        pass
    tx.put(c, 1, {"n": 2})
    tx.commit()
def until_signalled(call):
    def repeat(c):
        signal.signal(signal.SIGALRM, close)
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        while not outcomes:
            call(c)
    return repeat
calls = {
    "update_where": lambda c: c.update_where(lambda key, record: closing(record), g=1),
    "transaction": lambda c: db.transaction(lambda tx: closing(tx.put(c, 1, {}))),
    "import": lambda c: c.import_arrow(stream(), key="id"),
    "put_many": lambda c: c.put_many(pairs()),
    "put": put_of_transaction,
    "signal in delete_where": until_signalled(lambda c: c.delete_where("g = 1 or g = 2", batch=1)),
    "signal in update_where": until_signalled(lambda c: c.update_where(lambda key, record: record, g=1, batch=1)),
    "signal in find": until_signalled(lambda c: list(c.find(g=1))),
    "signal in items": until_signalled(lambda c: list(c.items())),
    "signal in put_many": until_signalled(lambda c: c.put_many((n, {"g": 1, "t": "x" * 100_000}) for n in range(50))),
    "signal in import": until_signalled(lambda c: c.import_arrow(pa.table({"id": list(range(1000))}), key="id")),
    "signal in transaction": until_signalled(lambda c: db.transaction(lambda tx: tx.put(c, 1, {}))),
}
for name, call in calls.items():
    outcomes.clear()
    db = bolide.open(":memory:")
    other = bolide.open(":memory:")
    c = db.create_collection("c", indexes=["g"])
    c.put_many((n, {"g": 1}) for n in range(3000))
    try:
        call(c)
        failure = None
    except (bolide.Closed, bolide.Conflict) as error:
        failure = error
    outcome = set(outcomes)
    assert outcomes and outcome <= {"closed", "refused", "not committed"}, (name, outcomes)
    assert db.closed == ("closed" in outcome), (name, outcomes)
    db.close(), db.close(), other.close()
    assert db.closed
    print(name, *sorted(outcome), flush=True)
"""


def test_closing_inside_a_call_does_not_hang() -> None:
    lines = run_program(CLOSES_INSIDE_CALLS).splitlines()
    assert len(lines) == 12, lines
    assert lines[:5] == [
        "update_where refused",
        "transaction closed",
        "import closed",
        "put_many closed",
        "put not committed refused",
    ]


def test_another_database_is_closed_inside_a_call(db: bolide.Db) -> None:
    c = db.create_collection("c")
    c[1] = {"n": 1}
    other = bolide.open(":memory:")

    def close(key: object, record: dict) -> None:
        other.close()

    c.update_where(close)
    assert other.closed and c[1] == {"n": 1}


def test_handles_left_open_at_the_exit(path: Path) -> None:
    program = f"""
import bolide
db = bolide.open({str(path)!r})
c = db.create_collection("c", indexes=["g"])
c.put_many((n, {{"g": 1}}) for n in range(2000))
items, answers, tx = c.items(), c.find(g=1), db.transaction()
next(items), next(answers)
tx.put(c, 1, {{}})
build = c.create_index("x:composite", background=True, records_per_second=10)
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, timeout=60, text=True)
    assert done.returncode == 0, done.stderr
    with bolide.open(path) as db:
        assert db["c"].count() == 2_000


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_memory_stays_flat(path: Path) -> None:
    with bolide.open(path, cache_bytes=8 << 20, memtable_bytes=4 << 20, memory_bytes=64 << 20) as db:
        c = db.create_collection("c", indexes=["g"])
        record = {"g": 1, "t": "some text", "l": [1, 2, {"x": None}]}

        def cycle(count: int) -> None:
            for number in range(count):
                c[number % 500] = record
                c[number % 500], c.get("none"), number in c
                if number % 20 == 0:
                    list(c.find(g=1, limit=10)), c.count(g=1)
                    with db.snapshot() as snap, c.items(at=snap) as items:
                        next(items)
                    with db.transaction() as tx:
                        tx.put(c, 1, record)
                    try:
                        c.put(1, {"a": {1}})
                    except TypeError:
                        pass
                if number % 500 == 0:
                    pa.table(c.arrow(columns={"g": "int64", "t": "string", "l": "json"}))
                    c.import_arrow(pa.table({"id": [1, 2], "g": [1, 2]}), key="id")

        cycle(20_000)
        gc.collect()
        objects, before = len(gc.get_objects()), resident_bytes()
        cycle(100_000)
        gc.collect()
        assert len(gc.get_objects()) - objects < 100
        assert resident_bytes() - before < 24 << 20, (before, resident_bytes())


def test_references_are_counted(db: bolide.Db, orders: bolide.Collection) -> None:
    key, record, default = "key" * 10, {"state": "open", "n": [object.__name__]}, object()
    counts = [sys.getrefcount(part) for part in (key, record, default, orders, db)]
    for _ in range(100):
        orders.put(key, record), orders.get("none", default), orders.get(key, default), key in orders
        orders.put_many([(key, record)]), list(orders.find(bolide.eq("state", key))), list(orders.items())
        orders.multi_get([key, "none"]), db.batch().put(orders, key, record)
        with db.transaction() as tx:
            tx.put(orders, key, record), tx.get(orders, key)
    assert [sys.getrefcount(part) for part in (key, record, default, orders, db)] == counts
