"""Signals during long calls, and objects that end without the lock of the interpreter."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import bolide

# A read of all records, of which each takes about half a second; a signal comes soon after its begin.
READS = {
    "count": "c.count('missing = 1')",
    "count of all": "c.count()",
    "summarize": "c.summarize('n')",
    "distinct": "c.distinct('g')",
    "largest": "c.largest('n', 'missing = 1')",
    "find": "c.find('missing = 1', limit=1)",
    "iteration": "list(c.find('missing = 1'))",
    "sort": "c.find(sort='n', limit=1)",
    "delete_where": "c.delete_where('missing = 1')",
    "update_where": "c.update_where(lambda key, record: None, 'missing = 1')",
    "check": "db.check()",
    "check deep": "db.check(deep=True)",
    "check_indexes": "c.check_indexes()",
    "advise": "c.advise('n')",
    "transaction": "db.transaction(lambda tx: tx.find(c, 'missing = 1'))",
}
# Calls that are longer than a second, or that wait.
OTHERS = {
    "compact": "[db.compact() for _ in range(10_000_000)]",
    "import": "c.import_arrow(one_batch, key='id')",
    "rebuild": "c.rebuild_index('g', records_per_second=1000)",
}
LONG_CALLS = """
import os, signal, sys, time, bolide, pyarrow as pa
reads, others = eval(sys.argv[2])
class Stop(Exception): pass
def handler(*_):
    raise Stop
signal.signal(signal.SIGALRM, handler)
db = bolide.open(sys.argv[1])
c = db.create_collection("c", indexes=["g"])
def timed(call, signal_after=0):
    begun = time.monotonic()
    signal.setitimer(signal.ITIMER_REAL, signal_after)
    try:
        eval(call)
        was_stopped = False
    except Stop:
        was_stopped = True
    signal.setitimer(signal.ITIMER_REAL, 0)
    return was_stopped, time.monotonic() - begun
count, whole = 0, 0
while whole < 0.4 and count < 3_000_000:
    more = max(200_000, count)
    c.put_many((n, {"g": n % 7, "n": n, "t": "x" * 50}) for n in range(count, count + more))
    count += more
    db.flush()
    whole = timed(reads["count"])[1]
for name, call in reads.items():
    _, whole = timed(call)
    for _ in range(5):
        was_stopped, elapsed = timed(call, 0.03)
        # Without an end inside of the call, the exception comes at its end.
        if was_stopped and elapsed < 0.7 * whole:
            print(name, "ended")
            break
    else:
        print(name, was_stopped, elapsed, "of", whole)
numbers = pa.array(range(3_000_000))
one_batch = pa.record_batch({"id": numbers, "a": numbers, "b": numbers, "c": numbers})
for name, call in others.items():
    was_stopped, elapsed = timed(call, 0.25)
    print(name, "ended" if was_stopped and elapsed < 1.25 else f"{was_stopped} {elapsed}")
assert c.get(1)
db.close()
"""


def test_signals_end_long_calls(path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", LONG_CALLS, str(path), repr((READS, OTHERS))]
    done = subprocess.run(command, capture_output=True, timeout=280, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{name} ended" for name in (*READS, *OTHERS)], done.stdout


REENTRY = """
import signal, sys, bolide
outcomes = set()
db = bolide.open(":memory:")
c = db.create_collection("c")
c.put_many((n, {"n": n}) for n in range(200_000))
answers = c.find("n >= 0")
def handler(*_):
    for use in (lambda: next(answers), answers.close, db.close):
        try:
            use()
            outcomes.add("used")
        except bolide.Conflict as error:
            assert "inside a call" in str(error)
            outcomes.add("refused")
    # Other objects may be used.
    assert c.get(7) == {"n": 7} and c.count("n < 10") == 10
    c.put(-1, {"n": -1})
signal.signal(signal.SIGALRM, handler)
for _ in range(20):
    slow = answers = c.find("missing = 1 or n = 199999", sort="n")
    outcomes.clear()
    signal.setitimer(signal.ITIMER_REAL, 0.06, 0.02)
    found = []
    try:
        found = [answer.key for answer in answers]
    except bolide.Closed:
        found = None
    signal.setitimer(signal.ITIMER_REAL, 0)
    print(sorted(outcomes), found, flush=True)
    if db.closed:
        break
"""


def test_a_handler_cannot_use_the_iterator_that_it_interrupts() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", REENTRY], capture_output=True, timeout=60, text=True
    )
    # It may also run between two pulls, and then may close what it wants: it does not hang.
    assert done.returncode == 0 and done.stdout, done.stderr


def test_an_interrupted_iteration_does_not_look_complete(db: bolide.Db) -> None:
    class Stop(Exception):
        pass

    def handler(*_: object) -> None:
        raise Stop

    # In the order of the index, after 256 answers of the first pull, a long way without any.
    c = db.create_collection("c", indexes=["n:composite"])
    c.put_many((n, {"n": n, "g": int(n < 256 or n == 149_999)}) for n in range(150_000))
    before = signal.signal(signal.SIGALRM, handler)
    expected = [*range(256), 149_999]
    outcomes = set()
    try:
        for _ in range(40):
            answers = c.find(bolide.ge("n", 0), g=1, order="value", index="n")
            found = [next(answers).key for _ in range(256)]
            signal.setitimer(signal.ITIMER_REAL, 0.01)
            try:
                found += [answer.key for answer in answers]
                signal.setitimer(signal.ITIMER_REAL, 0)
                outcomes.add("whole")
                assert found == expected
            except Stop:
                try:
                    rest = [answer.key for answer in answers]
                    # The signal came after the pull.
                    assert found + rest in (expected, expected[:-1]), (found[-1], rest)
                except bolide.Closed:
                    outcomes.add("closed")
                    break
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert "closed" in outcomes, outcomes


GOES_ON = """
import os, signal, sys, bolide
class Stop(Exception): pass
def handler(*_): raise Stop
signal.signal(signal.SIGALRM, handler)
db = bolide.open(sys.argv[1])
c = db.create_collection("c")
outcomes = set()
for round in range(30):
    c.put_many((n, {"n": n, "r": round, "t": os.urandom(200).hex()}) for n in range(40_000))
    signal.setitimer(signal.ITIMER_REAL, 0.002)
    try:
        db.compact()
        outcomes.add("compacted")
    except Stop:
        outcomes.add("stopped")
    signal.setitimer(signal.ITIMER_REAL, 0)
    if "stopped" in outcomes:
        break
# It waits for the compaction.
db.close()
with bolide.open(sys.argv[1]) as db:
    assert db.check(deep=True).is_sound and db["c"].count() == 40_000
print("stopped" in outcomes)
"""


def test_work_that_is_not_waited_for_goes_on(path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", GOES_ON, str(path)]
    done = subprocess.run(command, capture_output=True, timeout=120, text=True)
    assert done.stdout == "True\n" and done.returncode == 0, done.stderr


@pytest.fixture
def no_switches() -> "object":
    """The interpreter changes the thread only where its lock is released."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    yield None
    sys.setswitchinterval(before)


def test_objects_end_without_the_lock_of_the_interpreter(tmp_path: Path, no_switches: None) -> None:
    turns, is_done = 0, False

    def count() -> None:
        nonlocal turns
        while not is_done:
            turns += 1
            time.sleep(0)

    thread = threading.Thread(target=count, daemon=True)
    thread.start()
    during = 0
    for round in range(30):
        db = bolide.open(tmp_path / str(round))
        c = db.create_collection("c", indexes=["g"])
        c.put_many((n, {"g": 1, "t": "x" * 200}) for n in range(2_000))
        del c
        before = turns
        # The database was not closed: its end joins its threads.
        del db
        during += turns - before
    is_done = True
    thread.join(timeout=60)
    assert not thread.is_alive()
    assert during > 0


def test_calls_in_threads_of_their_own_leave_no_file_open(path: Path) -> None:
    with bolide.open(path) as db:
        c = db.create_collection("c")
        c[1] = {"n": 1}
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        with bolide.open(path) as db:
            db.flush(), db.compact(), db["c"].compact(), db.wait_until_settled(), db["c"].set_layout("tiered")
    assert len(os.listdir("/proc/self/fd")) <= before + 2
