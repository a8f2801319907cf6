"""What depends on the version of the interpreter; needs no package but pytest."""

import subprocess
import sys
import threading

import bolide


def test_many_names_do_not_stay_in_memory(db: bolide.Db) -> None:
    import gc

    c = db.create_collection("c")
    for start in range(0, 100_000, 1_000):
        c[start] = {f"user-{number}": number for number in range(start, start + 1_000)}
    c[-1] = {"name": 1}
    gc.collect()
    before = sys.getallocatedblocks()
    for _ in c.values():
        pass
    gc.collect()
    assert sys.getallocatedblocks() - before < 10_000
    # Equal names of records are one object.
    assert next(iter(c[-1])) is next(iter(c[-1]))


def test_the_import_imports_little() -> None:
    program = """
import sys
before = set(sys.modules)
import bolide
added = {name.partition(".")[0] for name in set(sys.modules) - before}
assert bolide.Key and bolide.sql and "sql" in dir(bolide)
print(*sorted(added))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True, timeout=60)
    assert done.stdout == "bolide\n"


def test_names_that_are_imported_late() -> None:
    from bolide import Condition, Key, Record, sql

    assert sql is bolide.sql and Key is bolide.Key and Record is bolide.Record and Condition is bolide.Condition
    assert set(bolide.__all__) <= set(dir(bolide))
    names: dict[str, object] = {}
    exec("from bolide import *", names)
    assert set(bolide.__all__) <= set(names)
    try:
        bolide.none  # type: ignore[attr-defined]
    except AttributeError as error:
        assert "'none'" in str(error)
    else:
        raise AssertionError


def test_threads_write_and_read(db: bolide.Db) -> None:
    c = db.create_collection("c", indexes=["g"])
    failures: list[BaseException] = []

    def use(own: int) -> None:
        try:
            for number in range(300):
                c[f"{own}-{number}"] = {"g": own, "n": number, "l": [number, {"x": None}]}
                assert c[f"{own}-{number}"]["n"] == number
                if number % 50 == 0:
                    with c.find(g=own, limit=5) as answers:
                        assert all(answer.record["g"] == own for answer in answers)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=use, args=(own,)) for own in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
        assert not thread.is_alive()
    assert not failures and c.count() == 2_400 and db.check(deep=True).is_sound
