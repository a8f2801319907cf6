"""Queries against an oracle: filters, orders, limits, pages, aggregates."""

import random
from typing import Any, Callable

import pytest

import bolide


def values_at(record: Any, path: str) -> list:
    """The values of an attribute, by the rules of the engine, for paths of fields."""
    for field in path.split("."):
        if not isinstance(record, dict) or field not in record:
            return []
        record = record[field]
    if isinstance(record, list):
        return [value for value in record if not isinstance(value, (dict, list))]
    return [] if isinstance(record, dict) else [record]


def is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def same(a: object, b: object) -> bool:
    return (is_number(a) and is_number(b) and a == b) or (type(a) is type(b) and a == b)


def compared(path: str, value: Any, test: Callable[[Any], bool]) -> Callable[[dict], bool]:
    kind = is_number if is_number(value) else lambda other: isinstance(other, str)
    return lambda record: any(kind(found) and test(found) for found in values_at(record, path))


def random_filter(source: random.Random, depth: int) -> tuple[bolide.Filter, Callable[[dict], bool]]:
    path = source.choice(["state", "total", "tags", "user.id", "absent"])
    value = source.choice(["open", "done", 0, 3, 5, 7.5, "a", "b"])
    kind = source.randrange(15 if depth else 11)
    if kind == 0:
        return bolide.eq(path, value), lambda r: any(same(value, v) for v in values_at(r, path))
    if kind == 1:
        return bolide.ne(path, value), lambda r: not any(same(value, v) for v in values_at(r, path))
    if kind == 2:
        return bolide.lt(path, value), compared(path, value, lambda v: v < value)
    if kind == 3:
        return bolide.le(path, value), compared(path, value, lambda v: v <= value)
    if kind == 4:
        return bolide.attribute(path) > value, compared(path, value, lambda v: v > value)
    if kind == 5:
        return bolide.attribute(path) >= value, compared(path, value, lambda v: v >= value)
    if kind == 6:
        low, high = sorted(source.sample(range(10), 2))
        include = source.choice(["both", "low", "high", "neither"])
        f = bolide.between(path, low, high, include=include)
        return f, compared(
            path,
            low,
            lambda v: (low < v or (low == v and include in ("both", "low")))
            and (v < high or (v == high and include in ("both", "high"))),
        )
    if kind == 7:
        some = source.sample(["open", "done", 1, 2, 3, "a"], 3)
        return bolide.one_of(path, some), lambda r: any(same(s, v) for s in some for v in values_at(r, path))
    if kind == 8:
        return bolide.exists(path), lambda r: bool(values_at(r, path))
    if kind == 9:
        return bolide.absent(path), lambda r: not values_at(r, path)
    if kind == 10:
        return bolide.is_null(path), lambda r: None in values_at(r, path)
    f, test = random_filter(source, depth - 1)
    g, other = random_filter(source, depth - 1)
    if kind == 11:
        return f & g, lambda r: test(r) and other(r)
    if kind == 12:
        return f | g, lambda r: test(r) or other(r)
    if kind == 13:
        return ~f, lambda r: not test(r)
    return bolide.all_of(f, bolide.any_of(g, f)), lambda r: test(r) and (other(r) or test(r))


def test_filters_select_what_the_oracle_selects(db: bolide.Db) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    source = random.Random(seed)
    c = db.create_collection("c", indexes=["state", "total", "tags[*]", "user.id:composite"])
    records = {}
    for number in range(200):
        record: dict = {}
        for name, choices in {
            "state": ["open", "done", None],
            "total": list(range(10)) + [7.5, "a"],
            "tags": [[], ["a"], ["a", "b", 3], [0, 5, None]],
            "user": [{"id": 3}, {"id": "a"}, {}, 5],
        }.items():
            if source.random() < 0.8:
                record[name] = source.choice(choices)
        c[number] = records[number] = record
    for _ in range(300):
        f, test = random_filter(source, 3)
        expected = [key for key in reversed(records) if test(records[key])]
        assert [answer.key for answer in c.find(f)] == expected, str(f)
        assert c.count(f) == len(expected)
        # The text of a filter has the same meaning.
        assert [answer.key for answer in c.find(str(f), keys_only=True, limit=1_000)] == expected, str(f)
        with db.transaction() as tx:
            assert [answer.key for answer in tx.find(c, f)] == expected
            assert tx.count(c, f) == len(expected)


def test_other_conditions(orders: bolide.Collection) -> None:
    def keys(f: object) -> list:
        return [answer.key for answer in orders.find(f)]

    assert keys(bolide.prefix("state", "op")) == ["o3", "o1"]
    assert keys(bolide.within("point(at.x,at.y)", 0, 50, 1, 52)) == ["o1"]
    assert keys(bolide.nearest("point(at.x,at.y)", 0, 0)) == ["o1"]
    assert keys(bolide.where('customer = "bob" and total < 15')) == ["o2"]
    assert keys(bolide.all_of()) == ["o3", "o2", "o1"] and keys(bolide.any_of()) == []
    assert bolide.eq("a", 1) == bolide.eq("a", 1) != bolide.eq("a", 2)
    assert len({bolide.eq("a", 1), bolide.eq("a", 1)}) == 1
    assert repr(bolide.eq("a", 1)) == "<bolide.Filter a = 1>"
    assert repr(bolide.attribute("a")) == 'bolide.attribute("a")' and bolide.attribute("a").path == "a"


def test_invalid_queries(orders: bolide.Collection) -> None:
    # The text of a filter on the left.
    total = bolide.ge("total", 10)
    assert str('state = "open"' & total) == 'state = "open" and total >= 10'
    assert str('state = "open"' | total) == 'state = "open" or total >= 10'
    for join in (lambda: 1 & total, lambda: None | total, lambda: total & 1):
        with pytest.raises(TypeError):
            join()
    with pytest.raises(bolide.InvalidInput):
        "state =" & total
    with pytest.raises(TypeError, match="no truth value"):
        bolide.eq("a", 1) and bolide.eq("b", 2)
    with pytest.raises(TypeError, match="no hash"):
        hash(bolide.attribute("a"))
    for make in (
        lambda: bolide.eq("a..b", 1),
        lambda: bolide.where("a ="),
        lambda: bolide.between("a", 1, "b"),
        lambda: bolide.between("a", 1, 2, include="none"),
        lambda: bolide.one_of("a", range(10_001)),
        lambda: bolide.within("rect(a)", 1, 1, 0, 0),
        lambda: orders.find(order="random"),
        lambda: orders.find(order="newest", sort="a"),
        lambda: orders.find(select=["a"], keys_only=True),
        lambda: orders.find(after="x"),
        lambda: orders.find(state="open", limit_per_value=1),
        lambda: bolide.eq("a", 2**70),
    ):
        with pytest.raises(ValueError):
            make()
    for make in (lambda: bolide.eq("a", []), lambda: orders.find(5), lambda: orders.find(sort=3)):
        with pytest.raises(TypeError):
            make()
    with pytest.raises(bolide.NotFound):
        orders.find(state="open", index="none")


def test_orders_and_limits(orders: bolide.Collection) -> None:
    def keys(*arguments: object, **settings: Any) -> list:
        return [answer.key for answer in orders.find(*arguments, **settings)]

    assert keys() == ["o3", "o2", "o1"] and keys(order="oldest") == ["o1", "o2", "o3"]
    assert keys("total >= 0", order="value") == ["o2", "o1", "o3"]
    assert keys("total >= 0", order="value-desc", limit=2) == ["o3", "o1"]
    assert keys(sort="customer") == ["o1", "o3", "o2"]
    assert keys(sort=["customer:desc", "total"]) == ["o2", "o3", "o1"]
    assert keys(limit=0) == [] and keys(limit=5_000) == ["o3", "o2", "o1"]
    assert keys("total >= 0", limit_per_value=1, order="value") == ["o2", "o1", "o3"]
    assert keys(state="open", index="state") == ["o3", "o1"]
    assert keys("total > 10", state="open", customer="bob") == ["o3"]


def test_answers_have_key_sequence_record_and_values(orders: bolide.Collection) -> None:
    answer = orders.find(state="open", limit=1).all()[0]
    assert (answer.key, answer.record["total"], answer["customer"]) == ("o3", 20, "bob")
    assert answer.raw == orders.get("o3", raw=True) and answer.sequence > 0
    assert answer.record is answer.record
    assert repr(answer) == f"<bolide.Answer key='o3' sequence={answer.sequence}>"
    with pytest.raises(KeyError):
        answer["none"]
    answer = orders.find(state="open", limit=1, select=["total", "absent", "state"]).all()[0]
    assert answer.values == {"total": [20], "absent": [], "state": ["open"]}
    assert (answer["total"], answer["absent"], answer.record, answer.raw) == (20, None, None, None)
    with pytest.raises(KeyError):
        answer["customer"]
    assert orders.find(keys_only=True).all()[0].record is None


def test_pages_at_a_snapshot_are_one_result(db: bolide.Db) -> None:
    c = db.create_collection("c", indexes=["g"])
    c.put_many((n, {"g": n % 3}) for n in range(1_000))
    for at in (None, db.snapshot()):
        found, token = [], None
        while True:
            page = c.find(g=1, limit=37, after=token, at=at)
            found += [answer.key for answer in page]
            token = page.next_token
            if token is None:
                break
            if at is not None:
                c[1_000 + len(found)] = {"g": 1}
        assert found == [n for n in reversed(range(1_000)) if n % 3 == 1]
        if at is not None:
            at.close()
    answers = c.find(g=1, limit=2_000)
    with pytest.raises(bolide.InvalidInput, match="read all answers"):
        answers.next_token
    answers.all()
    assert answers.next_token is None
    page = c.find(g=1, limit=3, at=db.snapshot())
    with pytest.raises(bolide.Expired):
        c.find(g=1, limit=3, after=page.next_token)


def test_long_answers_are_pulled_from_one_state(db: bolide.Db) -> None:
    c = db.create_collection("c", indexes=["g"])
    c.put_many((n, {"g": 1}) for n in range(2_000))
    with c.find(g=1) as answers:
        first = next(answers)
        assert c.delete_where(g=1).changed == 2_000
        assert [first.key] + [answer.key for answer in answers] == list(reversed(range(2_000)))
        assert answers.explain.answers == 2_000 and answers.explain.index == "g"
    assert c.count() == 0


def test_explain(orders: bolide.Collection) -> None:
    explain = orders.find(state="open", limit=5, measure=True).explain
    assert (explain.index, explain.is_full_scan, explain.answers) == ("state", False, 2)
    assert explain.candidates >= 2 and "state" in str(explain) and "state" in repr(explain)
    assert isinstance(explain.to_dict(), dict)
    assert orders.find(customer="bob", limit=5).explain.is_full_scan
    estimate = orders.estimate(state="open")
    assert estimate.indexes == ["state"] and not estimate.is_exact and estimate.records >= 1 and estimate.micros > 0
    assert "state" in repr(estimate)


def test_aggregates(orders: bolide.Collection) -> None:
    summary = orders.summarize("total", state="open")
    assert (summary.records, summary.values, summary.numbers, summary.sum) == (2, 2, 2, 32.5)
    assert (summary.mean, summary.min, summary.max) == (16.25, 12.5, 20)
    assert orders.summarize("none").mean is None and orders.summarize("none").min is None
    assert type(orders.summarize("total", customer="bob").sum) is int
    assert orders.distinct("customer", "total > 0") == [("ada", 1), ("bob", 2)]
    with pytest.raises(bolide.LimitExceeded):
        orders.distinct("customer", max=1)
    assert orders.smallest("total") == 10 and orders.largest("total", state="open") == 20
    assert orders.smallest("none") is None


def test_bulk_changes(orders: bolide.Collection) -> None:
    def change(key: str, record: dict) -> object:
        if key == "o1":
            return bolide.DELETE
        return None if record["state"] == "done" else {**record, "state": "late"}

    progress = orders.update_where(change, batch=1)
    assert (progress.found, progress.changed, progress.skipped) == (3, 2, 0) and "changed=2" in repr(progress)
    assert sorted(orders) == ["o2", "o3"] and orders["o3"]["state"] == "late"
    assert repr(bolide.DELETE) == "bolide.DELETE"
    with pytest.raises(ZeroDivisionError):
        orders.update_where(lambda key, record: 1 / 0)
    with pytest.raises(TypeError, match="a dict"):
        orders.update_where(lambda key, record: 5)
    assert orders.delete_where("total > 0", state="late").changed == 1


def test_parts_of_records(db: bolide.Db) -> None:
    c = db.create_collection("c", indexes=["g"])
    c["a"] = {"g": 1, "user": {"id": 7, "name": "ann", "tags": ["x", {"y": 1}]}, "rest": "r"}
    c["b"] = {"g": 1, "user": 5}
    found = {answer.key: answer.record for answer in c.find(g=1, parts=["user.id", "user.tags", "none"], limit=10)}
    assert found == {"a": {"user.id": 7, "user.tags": ["x", {"y": 1}]}, "b": {}}
    assert next(c.find(parts=["g"], limit=1)).raw == b'{"g":1}'
    with db.transaction() as tx:
        tx.put(c, "c", {"g": 2, "user": {"id": 8}})
        assert [answer.record for answer in tx.find(c, g=2, parts=["user"])] == [{"user": {"id": 8}}]
    for wrong in ({"select": ["g"], "parts": ["g"]}, {"parts": ["g"], "keys_only": True}, {"parts": ["a..b"]}):
        with pytest.raises(bolide.InvalidInput):
            c.find(**wrong)


def test_prepared_queries(db: bolide.Db) -> None:
    for kind in ("composite", "ps-tree", "lazy"):
        c = db.create_collection(kind, indexes=[f"g:{kind}"])
        c.put_many((n, {"g": n % 10, "n": n}) for n in range(1_000))
        prepared = c.prepare("g", limit=3)
        assert prepared.explain is None
        with db.snapshot() as snap:
            c[1_000] = {"g": 3, "n": 1_000}
            for g in (3, 4, 99, "3", None):
                assert [answer.key for answer in prepared.find(g)] == [answer.key for answer in c.find(g=g, limit=3)]
            assert [answer.record["n"] for answer in prepared.find(3, at=snap)] == [993, 983, 973]
            assert [answer.key for answer in prepared.find(3)] == [1_000, 993, 983]
            assert prepared.explain is not None and prepared.explain.answers == 3
        with c.prepare("g", "n > 500", keys_only=True, order="oldest") as others:
            assert [answer.key for answer in others.find(7)] == list(range(507, 1_000, 10))
            assert [answer.record for answer in others.find(7)][0] is None
        with pytest.raises(bolide.Closed):
            others.find(7)
        with pytest.raises(TypeError):
            prepared.find([])  # type: ignore[arg-type]
        with c.prepare("g", select=["n"], limit=1) as selected:
            assert selected.find(3)[0]["n"] == 1_000
    with pytest.raises(bolide.InvalidInput):
        c.prepare("a..b")
    db.close()
    with pytest.raises(bolide.Closed):
        prepared.find(1)


def test_updates_and_deletes_are_resumed(path) -> None:
    with bolide.open(path) as db:
        c = db.create_collection("c")
        c.put_many((n, {"g": n % 2}) for n in range(1_000))
        dry = c.delete_where(g=1, dry_run=True)
        assert (dry.changed, dry.position, c.count()) == (500, None, 1_000)
        reports = []

        def first_two(done: bolide.BulkProgress) -> bool:
            reports.append((done.found, done.changed, done.position is None))
            return len(reports) < 2

        stopped = c.update_where(lambda key, record: {"g": 1, "seen": 1}, g=1, batch=100, progress=first_two)
        assert reports == [(100, 100, False), (200, 200, False)] and stopped.changed == 200
        position = stopped.position
        assert position is not None
    with bolide.open(path) as db:
        c = db["c"]
        rest = c.update_where(lambda key, record: {**record, "seen": 2}, g=1, batch=100, resume=position)
        assert (rest.changed, rest.position) == (300, None)
        assert c.distinct("seen") == [(1, 200), (2, 300)]
        with pytest.raises(bolide.InvalidInput, match="another query"):
            c.delete_where(g=0, resume=position)
        with pytest.raises(bolide.InvalidInput, match="position"):
            c.delete_where(g=1, resume="abc")
        with pytest.raises(ZeroDivisionError):
            c.delete_where(g=1, progress=lambda done: 1 / 0)
        # An object that is false is not False: only that stops.
        assert c.delete_where(g=0, batch=100, progress=lambda done: None).changed == 500
