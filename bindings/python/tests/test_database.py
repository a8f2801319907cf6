"""Databases, batches, transactions, snapshots, indexes, errors."""

import threading
from pathlib import Path

import pytest

import bolide
from conftest import RECORDS, make_orders


def test_open_close_reopen(path: Path) -> None:
    db = bolide.open(path)
    orders = make_orders(db)
    snapshot, batch, items, answers = db.snapshot(), db.batch(), orders.items(), orders.find(state="open")
    tx = db.transaction()
    stream = orders.arrow()
    next(items), next(answers)
    assert not db.closed and db.path == str(path) and not db.read_only and bolide.has_writer(path)
    with pytest.raises(bolide.Locked):
        bolide.open(path)
    db.close()
    db.close()
    assert db.closed and not bolide.has_writer(path) and "closed" in repr(db)
    for use in (
        lambda: db.collections,
        lambda: db.collection("orders"),
        lambda: db.snapshot(),
        lambda: orders["o1"],
        lambda: orders.put("o1", {}),
        lambda: orders.name,
        lambda: snapshot.sequence,
        lambda: batch.commit(),
        lambda: orders.items(),
        lambda: tx.get(orders, "o1"),
        lambda: tx.commit(),
        lambda: stream.__arrow_c_stream__(),
        # What was read ahead is still delivered; then the iterator fails.
        lambda: orders.find(state="open"),
    ):
        with pytest.raises(bolide.Closed):
            use()
    snapshot.close(), items.close(), answers.close()
    assert "closed" in repr(orders) and "closed" in repr(snapshot)
    with bolide.open(path, create=False) as db:
        assert dict(db["orders"].items()) == RECORDS


def test_iterators_of_a_closed_database_fail(path: Path) -> None:
    db = bolide.open(path)
    c = db.create_collection("c", indexes=["g"])
    c.put_many((n, {"g": 1}) for n in range(1_000))
    items, answers = c.items(), c.find(g=1)
    next(items), next(answers)
    db.close()
    for iterator in (items, answers):
        with pytest.raises(bolide.Closed):
            list(iterator)


def test_open_iterators_warn_when_they_are_collected(db: bolide.Db) -> None:
    c = db.create_collection("c", indexes=["g"])
    c.put_many((n, {"g": 1}) for n in range(1_000))
    for make in (lambda: c.items(), lambda: c.find(g=1)):
        iterator = make()
        next(iterator)
        with pytest.warns(ResourceWarning, match="held a snapshot"):
            del iterator
    list(c.items())
    with c.find(g=1) as answers:
        next(answers)


def test_opening_fails(path: Path, tmp_path: Path) -> None:
    with pytest.raises(bolide.NotFound):
        bolide.open(path, create=False)
    with pytest.raises(bolide.NotFound):
        bolide.open(path, read_only=True)
    with pytest.raises(bolide.InvalidInput, match="batch, always, none"):
        bolide.open(path, sync="sometimes")
    (tmp_path / "file").write_text("x")
    with pytest.raises(bolide.Error):
        bolide.open(tmp_path / "file")


def test_a_database_in_memory_is_not_read_only() -> None:
    with pytest.raises(bolide.InvalidInput, match="in memory"):
        bolide.open(":memory:", read_only=True)


def test_read_only(path: Path) -> None:
    with bolide.open(path) as db:
        make_orders(db)
    with bolide.open(path, read_only=True) as db, bolide.open(path, read_only=True) as other:
        assert db.read_only and db["orders"]["o1"] == other["orders"]["o1"] == RECORDS["o1"]
        for write in (
            lambda: db["orders"].put("o4", {}),
            lambda: db.create_collection("c"),
            lambda: db.transaction(),
            lambda: db["orders"].create_index("customer"),
        ):
            with pytest.raises(bolide.ReadOnly):
                write()


def test_settings(path: Path) -> None:
    with bolide.open(
        path,
        sync="always",
        memory_bytes=64 << 20,
        cache_bytes=1 << 20,
        row_cache_bytes=1 << 16,
        memtable_bytes=1 << 20,
        background_threads=1,
        max_open_files=16,
    ) as db:
        assert db.stats()["memory_limit_bytes"] == 64 << 20
        for layout in ("leveled", "tiered", "fragmented", "partitioned"):
            for compression in ("lz4", "zstd", "none"):
                c = db.create_collection(f"{layout}-{compression}", layout=layout, compression=compression)
                c["k"] = {"a": 1}
        db.flush()
        assert all(db[name]["k"] == {"a": 1} for name in db.collections)
        c.set_layout("leveled")
        for wrong in ({"layout": "flat"}, {"compression": "gzip"}, {"keys": "int"}, {"records": "xml"}):
            with pytest.raises(bolide.InvalidInput):
                db.create_collection("wrong", **wrong)


def test_collections(db: bolide.Db, orders: bolide.Collection) -> None:
    with pytest.raises(bolide.Conflict):
        db.create_collection("orders")
    assert db.create_collection("orders", exist_ok=True)["o1"] == RECORDS["o1"]
    with pytest.raises(KeyError):
        db["none"]
    with pytest.raises(bolide.InvalidInput):
        db.create_collection("wrong", indexes=["a..b"])
    db.create_collection("a")
    assert db.collections == ["a", "orders"] and "a" in db and "b" not in db
    db.drop_collection("orders")
    with pytest.raises(bolide.NotFound):
        orders["o1"]
    with pytest.raises(bolide.NotFound):
        db.drop_collection("orders")


def test_batches(db: bolide.Db, orders: bolide.Collection) -> None:
    other = db.create_collection("other")
    with db.batch(sync="always") as batch:
        batch.put(orders, "o4", {"state": "new"})
        batch.put(other, 1, b'{"x":1}')
        batch.delete(orders, "o1")
        batch.delete_range(orders, "o2", "o3")
        assert len(batch) == 4 and bool(db.batch())
        assert "o4" not in orders
    assert sorted(orders) == ["o3", "o4"] and other[1] == {"x": 1}
    with pytest.raises(RuntimeError), db.batch() as batch:
        batch.put(orders, "o5", {})
        raise RuntimeError
    assert "o5" not in orders and len(batch) == 0
    batch = db.batch()
    assert batch.commit() >= 0
    batch.put(orders, "o5", {})
    sequence = batch.commit()
    answer = orders.find(keys_only=True, limit=1).all()[0]
    assert answer.sequence == sequence
    batch.expect(orders, "o5", sequence=sequence)
    batch.delete(orders, "o5")
    batch.commit()
    for expectation in ({"sequence": sequence}, {"present": True}):
        batch.expect(orders, "o5", **expectation)
        batch.put(orders, "o6", {})
        with pytest.raises(bolide.Conflict):
            batch.commit()
    assert "o6" not in orders
    with pytest.raises(bolide.InvalidInput):
        batch.expect(orders, "o5")
    with bolide.open(":memory:") as another, pytest.raises(bolide.InvalidInput):
        batch = another.batch()
        batch.put(orders, "o1", {})
        batch.commit()


def test_transactions(db: bolide.Db, orders: bolide.Collection) -> None:
    with db.transaction() as tx:
        tx.put(orders, "o4", {"state": "open", "total": 1})
        tx.delete(orders, "o1")
        assert tx.get(orders, "o4")["total"] == 1 and tx.get(orders, "o1") is None
        assert tx.get(orders, "o2", raw=True) == orders.get("o2", raw=True)
        assert [answer.key for answer in tx.find(orders, state="open")] == ["o4", "o3"]
        assert [key for key, _ in tx.items(orders)] == ["o2", "o3", "o4"]
        assert [key for key, _ in tx.items(orders, start="o3", reverse=True, raw=True)] == ["o4", "o3"]
        savepoint = tx.savepoint()
        tx.delete_range(orders, prefix="o")
        assert tx.count(orders) == 0
        tx.rollback_to(savepoint)
        assert tx.count(orders, state="open") == 2 and tx.memory_bytes > 0 and tx.sequence > 0
        assert "o4" not in orders
    assert sorted(orders) == ["o2", "o3", "o4"]
    with pytest.raises(ZeroDivisionError), db.transaction() as tx:
        tx.put(orders, "o5", {})
        1 / 0
    assert "o5" not in orders
    with pytest.raises(bolide.Closed):
        tx.put(orders, "o5", {})
    with db.transaction(isolation="snapshot", sync="always", max_bytes=1 << 20) as tx:
        tx.put(orders, "o6", {})
        tx.commit()
    with db.transaction() as tx:
        tx.put(orders, "o7", {})
        tx.rollback()
        tx.rollback()
    assert "o6" in orders and "o7" not in orders
    with pytest.raises(bolide.InvalidInput):
        db.transaction(isolation="dirty")


def test_conflicts(db: bolide.Db, orders: bolide.Collection) -> None:
    with pytest.raises(bolide.Conflict, match="o1"):
        with db.transaction() as tx:
            tx.get(orders, "o1")
            orders["o1"] = {"n": 1}
            tx.put(orders, "o2", {"n": 2})
    assert orders["o2"] == RECORDS["o2"]
    tx = db.transaction(isolation="snapshot")
    tx.get_for_update(orders, "o1")
    tx.put(orders, "o3", {})
    orders["o1"] = {}
    with pytest.raises(bolide.Conflict):
        tx.commit()


def test_transactions_are_repeated_after_conflicts(db: bolide.Db) -> None:
    counters = db.create_collection("counters")
    counters["visits"] = {"n": 0}

    def increment(tx: bolide.Transaction) -> int:
        record = tx.get(counters, "visits")
        tx.put(counters, "visits", {"n": record["n"] + 1})
        return record["n"]

    def work() -> None:
        for _ in range(50):
            db.transaction(increment)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counters["visits"] == {"n": 200}
    calls = []

    def always_late(tx: bolide.Transaction) -> None:
        calls.append(increment(tx))
        counters["visits"] = {"n": 0}

    with pytest.raises(bolide.Conflict, match="after 4 attempts"):
        db.transaction(always_late, retries=3)
    assert len(calls) == 4
    with pytest.raises(ZeroDivisionError):
        db.transaction(lambda tx: 1 / 0)

    def commits_itself(tx: bolide.Transaction) -> str:
        tx.put(counters, "own", {})
        tx.commit()
        return "done"

    assert db.transaction(commits_itself) == "done" and "own" in counters


def test_long_iterations_in_transactions(db: bolide.Db) -> None:
    c = db.create_collection("c")
    c.put_many((n, {"n": n}) for n in range(0, 2_000, 2))
    with db.transaction() as tx:
        for n in range(1, 2_000, 2):
            tx.put(c, n, {"n": n})
        assert [key for key, _ in tx.items(c)] == list(range(2_000))
        assert [r["n"] for _, r in tx.items(c, start=5, reverse=True)] == list(reversed(range(5, 2_000)))
        tx.rollback()


def test_snapshots(db: bolide.Db, orders: bolide.Collection) -> None:
    with db.snapshot() as before:
        orders.delete_range()
        assert orders.count() == 0 and orders.count(at=before) == 3
        assert orders.get("o1", at=before) == RECORDS["o1"]
        assert [key for key, _ in orders.items(at=before)] == ["o1", "o2", "o3"]
        assert [answer.key for answer in orders.find(state="open", at=before)] == ["o3", "o1"]
        assert repr(before) == f"<bolide.Snapshot sequence={before.sequence}>"
    with pytest.raises(bolide.Closed):
        orders.get("o1", at=before)
    with bolide.open(":memory:") as other, pytest.raises(bolide.InvalidInput):
        orders.count(at=other.snapshot())


def test_indexes(db: bolide.Db, orders: bolide.Collection) -> None:
    for kind in ("composite", "eager", "lazy", "next", "embedded", "ps-tree"):
        index = orders.create_index(f"customer:{kind}")
        assert (index.name, index.kind, index.state, index.attributes) == ("customer", kind, "ready", ["customer"])
        assert index.spec.startswith("customer") and index.problem is None and index.damage is None
        assert index.rebuild is None and "customer" in repr(index)
        assert [answer.key for answer in orders.find(customer="bob", index="customer")] == ["o3", "o2"]
        orders.rebuild_index("customer")
        build = orders.rebuild_index("customer", background=True)
        assert build.wait() and build.name == "customer"
        orders.drop_index("customer")
    with pytest.raises(bolide.NotFound):
        orders.index("customer")
    with pytest.raises(bolide.NotFound):
        orders.drop_index("customer")
    with pytest.raises(bolide.Conflict):
        orders.create_index("state")
    with pytest.raises(bolide.InvalidInput):
        orders.create_index("state:none")
    advice = orders.advise("customer", writes=0.1, lookups=0.9, limit=0, space_is_scarce=True, keys_only=True)
    assert advice.reasons and advice.others and advice.kind in advice.spec and "customer" in repr(advice)
    orders.create_index(advice.spec)
    assert [index.name for index in orders.indexes] == ["state", "total", "customer"]


def test_builds_in_the_background(db: bolide.Db) -> None:
    c = db.create_collection("c")
    c.put_many((n, {"g": n % 7}) for n in range(3_000))
    db.flush()
    build = c.create_index("g:composite", background=True, records_per_second=2_000)
    assert not build.wait(timeout=0.01) and not build.is_finished
    assert 0 <= build.progress.share < 1 and build.progress.state != "ready" and "%" in repr(build.progress)
    c[3_000] = {"g": 3}
    assert build.wait(timeout=60) and build.is_finished
    progress = build.progress
    assert progress.share == 1 and progress.records == progress.expected_records and progress.entries >= 3_000
    assert progress.malformed == 0 and progress.elapsed > 0.5 and progress.records_per_second > 0
    assert c.count(g=3) == len([n for n in range(3_000) if n % 7 == 3]) + 1


def test_maintenance(db: bolide.Db, orders: bolide.Collection, tmp_path: Path) -> None:
    db.sync(), db.flush(), db.compact(), db.wait_until_settled(), orders.compact()
    report = db.check(deep=True)
    assert report and report.is_sound and report.problems == [] and report.malformed_records == 0
    assert ("orders", "state") in report.indexes and "sstables" in str(report) and "0 problems" in repr(report)
    assert orders.check_indexes().is_sound
    db.checkpoint(tmp_path / "copy")
    with bolide.open(tmp_path / "copy", read_only=True) as copy:
        assert dict(copy["orders"].items()) == RECORDS
    stats = db.stats()
    assert stats["collections"][0]["indexes"][0]["name"] == "state" and stats["disk_bytes"] > 0
    text = bolide.repair(tmp_path / "copy", tmp_path / "repaired")
    assert "orders" in text
    with bolide.open(tmp_path / "repaired") as repaired:
        assert dict(repaired["orders"].items()) == RECORDS
    with pytest.raises(bolide.NotFound):
        bolide.repair(tmp_path / "none", tmp_path / "other")


def test_errors_have_classes_messages_and_advice(path: Path) -> None:
    with bolide.open(path) as db:
        with pytest.raises(bolide.NotFound) as caught:
            db.collection("posts")
        assert isinstance(caught.value, KeyError) and isinstance(caught.value, bolide.Error)
        assert "posts" in str(caught.value) and caught.value.advice == "check the name"
        make_orders(db)
    assert issubclass(bolide.InvalidInput, ValueError) and issubclass(bolide.NoSpace, OSError)
    # A damaged file is reported with its name.
    for file in path.glob("MANIFEST*"):
        damaged = bytearray(file.read_bytes())
        damaged[len(damaged) // 2] ^= 0xFF
        file.write_bytes(damaged)
    with pytest.raises(bolide.Corruption, match="MANIFEST") as caught:
        bolide.open(path)
    assert "repair" in caught.value.advice
