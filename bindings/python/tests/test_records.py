"""Records and keys: put, get, dict-like access, JSON in both directions."""

import json
import math
import random
from collections import ChainMap
from collections.abc import Mapping
from types import MappingProxyType

import pytest

import bolide

VALUES = [
    {},
    {"a": None, "b": True, "c": False},
    {"i": 0, "n": -1, "max": 2**63 - 1, "min": -(2**63), "u": 2**64 - 1},
    {"f": 0.5, "e": 1e300, "s": -1e-300, "z": -0.0, "whole": 1.0},
    {"t": "", "u": "é😀\u0000\n\"\\/", "long": "x" * 10_000},
    {"l": [1, [2, [3]], {}], "d": {"d": {"d": {}}}, "tuple": [1, 2]},
    {"": 1, "a.b": 2, "[x]": 3},
]


@pytest.mark.parametrize("value", VALUES)
def test_records_round_trip(orders: bolide.Collection, value: dict) -> None:
    orders["k"] = value
    found = orders["k"]
    assert found == value
    assert [type(part) for part in found.values()] == [type(part) for part in value.values()]
    assert json.loads(orders.get("k", raw=True)) == value
    # Text and bytes of JSON are stored as they are.
    text = json.dumps(value, indent=1, ensure_ascii=False)
    orders["text"] = text
    orders["bytes"] = text.encode()
    assert orders.get("text", raw=True) == orders.get("bytes", raw=True) == text.encode()


def test_random_records_round_trip(orders: bolide.Collection) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    source = random.Random(seed)

    def value(depth: int) -> object:
        kind = source.randrange(8 if depth else 6)
        if kind == 6:
            return [value(depth - 1) for _ in range(source.randrange(4))]
        if kind == 7:
            return {f"f{number}": value(depth - 1) for number in range(source.randrange(4))}
        number = source.getrandbits(source.randrange(1, 64))
        text = "".join(chr(source.choice([34, 92, 10, 97, 233, 0x1F600])) for _ in range(5))
        return [None, True, number, -number, source.uniform(-1e9, 1e9), text][kind]

    for _ in range(300):
        record = {"v": value(4)}
        orders["k"] = record
        assert orders["k"] == record == json.loads(orders.get("k", raw=True))


class Strange(dict):
    pass


class Number(int):
    pass


def test_subclasses_are_written_as_what_they_are(orders: bolide.Collection) -> None:
    orders["k"] = Strange(n=Number(3), b=True, t=(1, 2))
    assert orders["k"] == {"n": 3, "b": True, "t": [1, 2]}


@pytest.mark.parametrize(
    ("record", "error", "part"),
    [
        ({"a": {"b": [1, {2}]}}, TypeError, "record['a']['b'][1]: set"),
        ({"a": math.nan}, ValueError, "record['a']: the number nan"),
        ({"a": [math.inf]}, ValueError, "record['a'][0]"),
        ({"a": 2**64}, ValueError, "64 bits"),
        ({"a": -(2**63) - 1}, ValueError, "64 bits"),
        ({1: 2}, TypeError, "the name 1 of a field is int"),
        ({"a": {1: 2}}, TypeError, "record['a']: the name"),
        ({"a": "\ud800"}, ValueError, "surrogates"),
        ({"\ud800": 1}, ValueError, "surrogates"),
        ({"a": b"x"}, TypeError, "bytes has no form"),
        ([], TypeError, "a dict, or bytes or str of JSON, not list"),
        (None, TypeError, "not NoneType"),
        (b"[1]", bolide.InvalidInput, "object"),
        ("{", bolide.InvalidInput, ""),
        ('{"a":1,"a":2}', bolide.InvalidInput, "a"),
        (b'{"a":"\xff"}', bolide.InvalidInput, ""),
    ],
)
def test_what_has_no_form_in_json_is_refused(
    db: bolide.Db, orders: bolide.Collection, record: object, error: type, part: str
) -> None:
    with db.transaction() as tx:
        for put in (
            lambda: orders.put("k", record),
            lambda: orders.put_many([("k", record)]),
            lambda: db.batch().put(orders, "k", record),
            lambda: tx.put(orders, "k", record),
        ):
            with pytest.raises(error) as caught:
                put()
            assert part in str(caught.value)
    assert "k" not in orders


class Failing(Mapping):
    def __getitem__(self, name: str) -> object:
        raise LookupError("no value of " + name)

    def __iter__(self):
        return iter(["a"])

    def __len__(self) -> int:
        return 1


def test_every_mapping_is_a_record(db: bolide.Db, orders: bolide.Collection) -> None:
    part = MappingProxyType({"b": [MappingProxyType({}), ChainMap({"c": 1}, {"c": 2, "d": None})]})
    for record in (MappingProxyType({"a": part}), ChainMap({}, {"a": part})):
        orders["m"] = record
        assert orders["m"] == {"a": {"b": [{}, {"c": 1, "d": None}]}}
        with db.transaction() as tx:
            tx.put(orders, "n", record)
        assert orders["n"] == orders["m"]
    with pytest.raises(LookupError, match="no value of a"):
        orders["m"] = Failing()
    with pytest.raises(bolide.InvalidInput, match=r"record\['x'\]\[0\]: the mapping failed: .*no value of a"):
        orders["m"] = {"x": [Failing()]}
    with pytest.raises(TypeError, match="bytes or str"):
        db.create_collection("b", records="bytes").put("k", part)


def test_depth_is_limited_in_both_directions(orders: bolide.Collection) -> None:
    value: object = 1
    for _ in range(127):
        value = [value]
    orders["k"] = {"a": value}
    assert orders["k"] == {"a": value}
    with pytest.raises(bolide.InvalidInput, match="128 levels"):
        orders["k"] = {"a": [value]}
    loop: dict = {}
    loop["a"] = loop
    with pytest.raises(bolide.InvalidInput, match="128 levels"):
        orders["k"] = loop


def test_dict_like_access(orders: bolide.Collection) -> None:
    assert "o1" in orders and "o9" not in orders
    assert orders.get("o9") is None and orders.get("o9", 7) == 7
    with pytest.raises(KeyError):
        orders["o9"]
    with pytest.raises(bolide.NotFound, match="o9"):
        del orders["o9"]
    del orders["o1"]
    # It has no length, which would read all keys, and `list` would request it.
    with pytest.raises(TypeError):
        len(orders)  # type: ignore[arg-type]
    assert list(orders) == ["o2", "o3"] and orders.count() == 2 and bool(orders)
    orders.delete("o9")
    assert orders.multi_get(["o9", "o2"], raw=True)[0] is None
    assert [key for key, _ in orders.items()] == list(orders.keys())
    assert [record["total"] for record in orders.values(reverse=True)] == [20, 10]
    assert repr(orders) == '<bolide.Collection "orders">'


def test_typed_keys_sort_as_numbers_and_texts(db: bolide.Db) -> None:
    numbers = db.create_collection("numbers")
    keys = [-(2**63), -300, -2, 0, 9, 10, 2**63, 2**64 - 1, "", "9", "a", "é"]
    for key in reversed(keys):
        numbers[key] = {"k": str(key)}
    assert list(numbers) == keys
    assert list(numbers.keys(start=-2, end=10)) == [-2, 0, 9]
    assert list(numbers.keys(prefix="")) == ["", "9", "a", "é"]
    for key in (True, 1.0, None, (1,)):
        with pytest.raises(TypeError, match="str, int or bytes"):
            numbers[key] = {}
    for key in (2**64, -(2**63) - 1, "\udc00"):
        with pytest.raises(bolide.InvalidInput):
            numbers[key] = {}
    numbers[b"\xff"] = {}
    # Bytes that would be read as another key are refused, in every call.
    for encoded, part in ((b"\x1ca", "of the str \"a\""), (b"\x11\x07", "of the int 7"), (b"\x10", "of the int 0")):
        for use in (lambda: numbers.get(encoded), lambda: numbers.put(encoded, {}), lambda: encoded in numbers,
                    lambda: numbers.delete(encoded), lambda: numbers.items(start=encoded)):  # fmt: skip
            with pytest.raises(bolide.InvalidInput, match=part):
                use()
    assert numbers.get(b"\x1c\xff") is None and numbers.get(b"") is None
    assert list(numbers)[-1] == b"\xff"


def test_collections_of_bytes(db: bolide.Db) -> None:
    blobs = db.create_collection("blobs", keys="bytes", records="bytes")
    blobs[b"\xff\x00"] = b"\x00\xff"
    blobs["text"] = bytearray(b"abc")
    assert list(blobs.items()) == [(b"text", b"abc"), (b"\xff\x00", b"\x00\xff")]
    assert blobs["text"] == b"abc"
    with pytest.raises(TypeError, match="bytes or str"):
        blobs[1] = b""
    with pytest.raises(TypeError, match="bytes or str"):
        blobs["a"] = {"a": 1}
    with pytest.raises(bolide.InvalidInput):
        blobs.create_index("a")


def test_ranges_of_keys(db: bolide.Db) -> None:
    c = db.create_collection("c")
    assert c.put_many({f"{letter}{number}": {} for letter in "ab" for number in range(5)}) == 10
    assert list(c.keys(prefix="a", start="a2")) == ["a2", "a3", "a4"]
    assert list(c.keys(prefix="a", end="a2", reverse=True)) == ["a1", "a0"]
    assert list(c.keys(start="a4", end="b1")) == ["a4", "b0"]
    assert list(c.keys(start="b", end="a")) == []
    c.delete_range(prefix="a")
    assert c.count() == 5
    c.delete_range("b1")
    assert list(c) == ["b0"]


def test_long_iterations_read_everything_once(db: bolide.Db) -> None:
    c = db.create_collection("c")
    count = 3_000
    assert c.put_many((number, {"n": number}) for number in range(count)) == count
    with db.snapshot() as snap, c.items(at=snap) as items:
        first = next(items)
        c.delete_range(10, 2_990)
        assert [first[0]] + [key for key, _ in items] == list(range(count))
        assert [record["n"] for record in c.values(reverse=True, at=snap)] == list(reversed(range(count)))
    assert c.count() == 20


def test_put_many_takes_batches_and_reports_errors(db: bolide.Db) -> None:
    c = db.create_collection("c")
    big = "x" * 100_000
    assert c.put_many(((n, {"t": big}) for n in range(100)), sync="always") == 100
    with pytest.raises(TypeError, match="element 1 is no pair"):
        c.put_many([("a", {}), 5])

    def failing():
        yield "b", {}
        raise RuntimeError("from the generator")

    with pytest.raises(RuntimeError, match="from the generator"):
        c.put_many(failing())
    assert "a" not in c and "b" not in c
    assert c.put_many([]) == 0


def test_large_records_and_limits(orders: bolide.Collection) -> None:
    orders["big"] = {"t": "x" * (8 << 20)}
    assert len(orders["big"]["t"]) == 8 << 20
    with pytest.raises(bolide.LimitExceeded):
        orders["k" * 70_000] = {}
