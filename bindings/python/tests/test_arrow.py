"""Arrow streams out and in: pyarrow, pandas, polars, duckdb."""

import datetime
import json
import random
import threading
from decimal import Decimal

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import bolide

COLUMNS = {
    "_key": "string",
    "b": "bool",
    "i": "int64",
    "f": "float64",
    "s": "string",
    "d": "date",
    "t": "timestamp",
    "ms": "timestamp[ms]",
    "user.id": "int64",
    "tags": "list<string>",
    "numbers": "list<float64>",
    "j": "json",
    "_sequence": "int64",
    "_record": "json",
}


@pytest.fixture
def c(db: bolide.Db) -> bolide.Collection:
    c = db.create_collection("c", indexes=["i", "s"])
    c["k1"] = {
        "b": True, "i": 1.0, "f": 2, "s": "é\n", "d": "2026-11-30", "t": "2026-11-30T12:00:00.5+01:00", "ms": 1_500,
        "user": {"id": 7}, "tags": ["a", None, 5], "numbers": [1, 2.5], "j": {"x": [1]},
    }  # fmt: skip
    c["k2"] = {"b": 1, "i": "1", "f": "2", "s": 5, "d": "x", "t": 5, "ms": 0.5, "user": 7, "tags": "a", "numbers": [], "j": None}
    c["k3"] = {}
    return c


def test_all_types(c: bolide.Collection) -> None:
    table = pa.table(c.arrow(columns=COLUMNS))
    rows = table.to_pylist()
    sequences = [row.pop("_sequence") for row in rows]
    assert sequences == sorted(sequences)
    assert [json.loads(row.pop("_record")) for row in rows] == list(c.values())
    assert rows[0] == {
        "_key": "k1", "b": True, "i": 1, "f": 2.0, "s": "é\n", "d": datetime.date(2026, 11, 30),
        "t": datetime.datetime(2026, 11, 30, 11, 0, 0, 500_000), "ms": datetime.datetime(1970, 1, 1, 0, 0, 1, 500_000),
        "user.id": 7, "tags": ["a", None, None], "numbers": [1.0, 2.5], "j": '{"x":[1]}',
    }  # fmt: skip
    assert rows[1] == dict.fromkeys(rows[1], None) | {"_key": "k2", "numbers": []}
    assert rows[2] == dict.fromkeys(rows[2], None) | {"_key": "k3"}
    assert not table.schema.field("_key").nullable and table.schema.field("i").nullable


def test_inference(c: bolide.Collection) -> None:
    c.delete("k2")
    inferred = c.arrow()
    assert inferred.columns == {
        "_key": "string", "b": "bool", "i": "float64", "f": "int64", "s": "string", "d": "string", "t": "string",
        "ms": "int64", "user.id": "int64", "tags": "json", "numbers": "list<float64>", "j.x": "list<int64>",
    }  # fmt: skip
    assert "user.id int64" in repr(inferred)
    assert c.arrow(columns=["user.id", "_key", "_record"]).columns == {"user.id": "int64", "_key": "string", "_record": "json"}
    for wrong in (["none"], {"a": "decimal"}, {"a[*]": "int64"}, {"_key": "json"}):
        with pytest.raises(bolide.InvalidInput):
            c.arrow(columns=wrong)
    with pytest.raises(TypeError):
        c.arrow(columns="i")


def test_keys_of_all_types(db: bolide.Db) -> None:
    for keys, of in (([1, -5], "int64"), (["a"], "string"), ([1, "a"], "string"), ([b"\xff"], "binary")):
        c = db.create_collection(str(keys))
        c.put_many((key, {}) for key in keys)
        assert c.arrow().columns == {"_key": of}
        assert pa.table(c.arrow()).num_rows == len(keys)
    c = db.create_collection("bytes", keys="bytes")
    c["é"] = {}
    assert pl.DataFrame(c.arrow())["_key"].to_list() == ["é"]
    wrong = db["['a']"].arrow(columns={"_key": "int64"})
    with pytest.raises(pa.ArrowInvalid, match="bolide.InvalidInput: .*declare another type") as caught:
        pa.table(wrong)
    assert type(bolide.error_of(caught.value)) is bolide.InvalidInput
    connection = duckdb.connect()
    for consume in (
        lambda: pl.DataFrame(wrong),
        lambda: connection.register("w", wrong).execute("select * from w").fetchall(),
    ):
        with pytest.raises(Exception) as other:
            consume()
        assert type(bolide.error_of(other.value)) is bolide.InvalidInput, other.value


def test_an_import_of_a_failed_stream_raises_its_error(db: bolide.Db, tmp_path) -> None:
    other = bolide.open(tmp_path / "other")
    source = other.create_collection("source")
    source.put_many((n, {"n": n}) for n in range(20_000))
    c = db.create_collection("c")

    def closing():
        reader = pa.RecordBatchReader.from_stream(source.arrow(columns={"_key": "int64", "n": "int64"}))
        yield reader.read_next_batch()
        other.close()
        yield from reader

    schema = pa.schema([pa.field("_key", pa.int64(), False), ("n", pa.int64())])
    with pytest.raises(bolide.Closed, match="the database was closed"):
        c.import_arrow(pa.RecordBatchReader.from_batches(schema, closing()), key="_key")
    with pytest.raises(bolide.InvalidInput, match="the Arrow stream failed: .*division"):
        c.import_arrow(pa.RecordBatchReader.from_batches(schema, (1 / 0 for _ in range(1))), key="_key")


def test_the_schema_of_a_snapshot_is_that_of_its_records(db: bolide.Db) -> None:
    c = db.create_collection("c")
    c["a"] = {"old": 1}
    with db.snapshot() as snap:
        c.delete_range()
        c[5] = {"new": "x"}
        assert c.arrow(at=snap).columns == {"_key": "string", "old": "int64"}
        assert pa.table(c.arrow(at=snap)).to_pylist() == [{"_key": "a", "old": 1}]
        assert c.arrow(columns=["old"], at=snap).columns == {"old": "int64"}
        assert c.arrow().columns == {"_key": "int64", "new": "string"}


def test_a_text_behind_the_sample_makes_the_keys_texts(db: bolide.Db) -> None:
    c = db.create_collection("c")
    c.put_many((n, {"n": n}) for n in range(20_000))
    c["z"] = {"n": 0}
    assert c.arrow().columns == {"_key": "string", "n": "int64"}
    assert pa.table(c.arrow())["_key"].to_pylist()[-1] == "z"


def test_threads_read_in_the_order_of_the_keys(db: bolide.Db, tmp_path) -> None:
    for layout in ("leveled", "partitioned"):
        c = db.create_collection(layout, layout=layout)
        c.put_many((n, {"n": n, "t": "x" * (n % 50), "l": [n]}) for n in range(250_000))
        c.delete_range(1_000, 3_000)
        db.flush()
        c[-1] = {"n": -1}
        columns = {"_key": "int64", "n": "int64", "t": "string", "l": "list<int64>"}
        expected = pa.table(c.arrow(columns=columns, threads=1))
        assert expected.num_rows == 248_001
        for threads in (2, 3, 7):
            found = pa.table(c.arrow(columns=columns, threads=threads))
            assert found.equals(expected)
        # A stream that is not read to its end ends its threads, also by closing.
        reader = pa.RecordBatchReader.from_stream(c.arrow(columns=columns, threads=3))
        assert reader.read_next_batch().num_rows > 0
        with db.snapshot() as snap:
            c.delete_range()
            del reader
            assert pa.table(c.arrow(columns=columns, threads=3, at=snap)).equals(expected)
            rest = pa.RecordBatchReader.from_stream(c.arrow(columns=columns, threads=3, at=snap))
            rest.read_next_batch()
            # An error of one part ends the stream.
            with pytest.raises(pa.ArrowInvalid, match="declare another type"):
                pa.table(c.arrow(columns={"_key": "binary", "n": "int64"}, threads=2, at=snap))
    db.close()
    with pytest.raises(pa.ArrowInvalid, match="closed"):
        rest.read_all()


def test_parts_of_a_batch_are_imported_as_the_whole(db: bolide.Db) -> None:
    c = db.create_collection("c")
    count = 50_000
    batch = pa.record_batch(
        {"id": range(count), "d": pa.array([f"v{n % 9}" for n in range(count)]).dictionary_encode(), "l": [[n] for n in range(count)]}
    )
    assert c.import_arrow(batch, key="id") == count
    assert [record["l"][0] for record in c.values()] == list(range(count)) and c.count(d="v3") == len(range(3, count, 9))
    wrong = pa.record_batch({"id": range(40_000), "x": [0.5] * 39_999 + [float("nan")]})
    with pytest.raises(bolide.InvalidInput, match="row 39999"):
        c.import_arrow(wrong, key="id")


def test_queries_and_snapshots(db: bolide.Db) -> None:
    c = db.create_collection("c", indexes=["g"])
    c.put_many((n, {"g": n % 5, "n": n}) for n in range(20_000))
    columns = {"n": "int64"}
    with db.snapshot() as snap:
        whole = c.arrow(columns=columns, at=snap)
        some = c.arrow(bolide.lt("n", 10_000), g=3, columns=columns)
        ordered = c.arrow("g >= 3", order="value", limit=10, columns=columns)
        assert pa.table(whole)["n"].to_pylist() == list(range(20_000))
        expected = [n for n in reversed(range(10_000)) if n % 5 == 3]
        # Each stream is a new query.
        assert pa.table(some)["n"].to_pylist() == pa.table(some)["n"].to_pylist() == expected
        assert pa.table(ordered)["n"].to_pylist() == [19_998 - 5 * n for n in range(10)]
        assert pa.table(c.arrow(columns=columns, sort="n:desc", limit=3))["n"].to_pylist() == [19_999, 19_998, 19_997]
        batches = pa.table(c.arrow(columns=columns, batch_rows=1_000)).to_batches()
        assert [batch.num_rows for batch in batches] == [1_000] * 20
        c.delete_range(0, 19_000)
        assert pa.table(whole).num_rows == 20_000 and pa.table(c.arrow(columns=columns)).num_rows == 1_000
    with pytest.raises(bolide.Closed):
        pa.table(whole)
    c.delete_range()
    empty = pa.table(c.arrow(columns=columns))
    assert empty.num_rows == 0 and empty.schema.names == ["n"]
    assert pa.table(c.arrow(columns={})).num_columns == 0


def test_batches_are_bounded_in_bytes(db: bolide.Db) -> None:
    c = db.create_collection("c")
    c.put_many((n, {"t": "x" * 100_000}) for n in range(200))
    sizes = [batch.nbytes for batch in pa.table(c.arrow(columns={"t": "string"})).to_batches()]
    assert len(sizes) >= 5 and max(sizes) < 5 << 20


def test_consumers(c: bolide.Collection) -> None:
    exported = c.arrow(columns=COLUMNS)
    expected = pa.table(exported)
    assert pl.DataFrame(exported)["i"].to_list() == [1, None, None]
    assert pd.DataFrame.from_arrow(exported)["s"].isna().tolist() == [False, True, True]
    assert expected.to_pandas()["f"].iloc[0] == 2.0
    connection = duckdb.connect()
    assert connection.sql("select sum(f), count(*) from exported").fetchall() == [(2.0, 3)]
    connection.register("t", exported)
    assert connection.sql("select _key from t where b").fetchall() == [("k1",)]
    assert pa.schema(exported) == expected.schema


def test_a_stream_of_a_closed_database_fails(path) -> None:
    db = bolide.open(path)
    c = db.create_collection("c")
    c.put_many((n, {"n": n}) for n in range(50_000))
    reader = pa.RecordBatchReader.from_stream(c.arrow(columns={"n": "int64"}))
    assert reader.read_next_batch().num_rows == 8_192
    db.close()
    with pytest.raises(Exception, match="bolide.Closed: the database was closed") as caught:
        reader.read_all()
    error = bolide.error_of(caught.value)
    assert type(error) is bolide.Closed and error.advice == "open the database again"
    assert str(error).startswith("the database was closed") and bolide.error_of(ValueError("bolide.None: x")) is None


def test_streams_are_read_by_several_threads(db: bolide.Db) -> None:
    c = db.create_collection("c")
    c.put_many((n, {"n": n}) for n in range(30_000))
    sums = []
    table = c.arrow(columns={"n": "int64"})
    threads = [threading.Thread(target=lambda: sums.append(sum(pa.table(table)["n"].to_pylist()))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sums == [sum(range(30_000))] * 4


SOURCE = pa.table(
    {
        "id": ["a", "b", "c"],
        "b": pa.array([True, None, False]),
        "i8": pa.array([1, None, -1], pa.int8()),
        "u64": pa.array([2**64 - 1, None, 0], pa.uint64()),
        "f32": pa.array([0.1, None, 1e30], pa.float32()),
        "f64": [0.1, None, -1e300],
        "text": pa.array(["é\"\n", None, ""], pa.large_string()),
        "view": pa.array(["x", None, "y" * 100], pa.string_view()),
        "date": pa.array([0, None, 20_000], pa.date32()),
        "time": pa.array([1_000_001, None, 0], pa.time64("us")),
        "stamp": pa.array([1_500, None, -1], pa.timestamp("ms")),
        "utc": pa.array([1, None, 0], pa.timestamp("ns", tz="UTC")),
        "decimal": pa.array([Decimal("1.50"), None, Decimal("-0.01")], pa.decimal128(10, 2)),
        "list": pa.array([[1, None], None, []], pa.list_(pa.int64())),
        "fixed": pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int64(), 2)),
        "struct": pa.array([{"x": 1, "y": {"z": None}}, None, {"x": None, "y": {"z": 2}}]),
        "dictionary": pa.array(["p", None, "p"]).dictionary_encode(),
        "null": pa.nulls(3),
    }
)
EXPECTED = {
    "a": {
        "id": "a", "b": True, "i8": 1, "u64": 2**64 - 1, "f32": 0.1, "f64": 0.1, "text": "é\"\n", "view": "x",
        "date": "1970-01-01", "time": "00:00:01.000001", "stamp": "1970-01-01T00:00:01.500",
        "utc": "1970-01-01T00:00:00.000000001Z", "decimal": "1.50", "list": [1, None], "fixed": [1, 2],
        "struct": {"x": 1, "y": {}}, "dictionary": "p",
    },
    "b": {"id": "b"},
    "c": {
        "id": "c", "b": False, "i8": -1, "u64": 0, "f32": 1e30, "f64": -1e300, "text": "", "view": "y" * 100,
        "date": "2024-10-04", "time": "00:00:00", "stamp": "1969-12-31T23:59:59.999", "utc": "1970-01-01T00:00:00Z",
        "decimal": "-0.01", "list": [], "fixed": [3, 4], "struct": {"y": {"z": 2}}, "dictionary": "p",
    },
}  # fmt: skip


def test_import_of_all_types(db: bolide.Db) -> None:
    c = db.create_collection("c")
    assert c.import_arrow(SOURCE, key="id", sync="always") == 3
    assert dict(c.items()) == EXPECTED
    # Batches with offsets, and several of them. Arrow 59 does not read slices of structs within structs.
    with pytest.raises(bolide.InvalidInput, match="copy them before"):
        c.import_arrow(SOURCE.slice(1, 2), key="id")
    assert dict(c.items()) == EXPECTED
    flat = {key: {**record, "struct": {"x": 1}} if key == "a" else record for key, record in EXPECTED.items()}
    flat["c"] = {**flat["c"], "struct": {}}
    at = SOURCE.column_names.index("struct")
    source = SOURCE.set_column(at, "struct", pa.array([{"x": 1}, None, {"x": None}]))
    sliced = pa.concat_tables([source, source]).slice(1, 3)
    c.delete_range()
    assert c.import_arrow(sliced, key="id") == 3
    assert dict(c.items()) == flat
    assert c.import_arrow(SOURCE.to_batches()[0], key="id") == 3
    assert c.import_arrow(SOURCE.slice(0, 0), key="id") == 0
    # A dictionary without values, whose rows are NULL.
    for nothing in (pa.array([None, None], pa.string()), pa.array([None, None], pa.int64())):
        table = pa.table({"id": ["e1", "e2"], "empty": nothing.dictionary_encode()})
        assert c.import_arrow(table, key="id") == 2 and c["e2"] == {"id": "e2"}
        with pytest.raises(bolide.InvalidInput, match="row 0: the key is NULL"):
            c.import_arrow(table, key="empty")
    c.delete_range(prefix="e")
    # A list of few bytes with very many elements.
    many = pa.ListArray.from_arrays(pa.array([0, 1, 1 << 30], pa.int32()), pa.nulls(1 << 30))
    with pytest.raises(bolide.LimitExceeded, match='row 1: column "list": the record has more than 67108864 bytes'):
        c.import_arrow(pa.table({"id": ["m1", "m2"], "list": many}), key="id")


def test_capsules(db: bolide.Db, c: bolide.Collection) -> None:
    class Once:
        """An object whose capsules are the same at each call."""

        def __init__(self, name: str, capsules: object) -> None:
            setattr(self, name, lambda requested_schema=None: capsules)

    target = db.create_collection("target")
    batch = pa.record_batch({"id": [1, 2], "x": ["a", None]})
    for name, source in (("__arrow_c_stream__", pa.table(batch)), ("__arrow_c_array__", batch)):
        once = Once(name, getattr(source, name)())
        assert target.import_arrow(once, key="id") == 2 and target[2] == {"id": 2}
        # Its capsules were read.
        with pytest.raises(bolide.InvalidInput, match="released|read before"):
            target.import_arrow(once, key="id")
    # An export that no one reads, and one that is read once.
    table = c.arrow(columns={"i": "int64"})
    table.__arrow_c_stream__(), table.__arrow_c_schema__()
    assert target.import_arrow(Once("__arrow_c_stream__", c.arrow(columns={"_key": "string"}).__arrow_c_stream__()), key="_key") == 3
    for wrong in (
        Once("__arrow_c_stream__", table.__arrow_c_schema__()),
        Once("__arrow_c_array__", (table.__arrow_c_schema__(), table.__arrow_c_stream__())),
        Once("__arrow_c_array__", pa.array([1]).__arrow_c_array__()),
        Once("__arrow_c_array__", pa.array([{"id": 1}, None]).__arrow_c_array__()),
        Once("__arrow_c_stream__", 5),
        Once("__arrow_c_array__", ()),
        [1, 2],
    ):
        with pytest.raises((bolide.InvalidInput, TypeError, ValueError, IndexError)):
            target.import_arrow(wrong, key="id")
    with pytest.raises(TypeError, match="neither __arrow_c_stream__"):
        target.import_arrow("text", key="id")


def test_import_from_pandas_polars_and_duckdb(db: bolide.Db) -> None:
    rows = {"id": [1, 2], "name": ["a", None], "x": [0.5, float("nan")]}
    frames = {
        "pandas": pd.DataFrame(rows),
        "polars": pl.DataFrame({"id": [1, 2], "name": ["a", None], "x": [0.5, None]}),
        "duckdb": duckdb.sql("select * from (values (1, 'a', 0.5::double), (2, null, null)) t(id, name, x)"),
    }
    for name, frame in frames.items():
        c = db.create_collection(name)
        assert c.import_arrow(frame, key="id") == 2
        assert dict(c.items()) == {1: {"id": 1, "name": "a", "x": 0.5}, 2: {"id": 2}}, name


def test_what_cannot_be_imported(db: bolide.Db) -> None:
    c = db.create_collection("c")
    for table, part in (
        (pa.table({"a": [1]}), "the columns are a"),
        (pa.table({"id": [None, 1]}), "row 0: the key is NULL"),
        (pa.table({"id": [1, 2], "x": [0.5, float("inf")]}), 'row 1: column "x"'),
        (pa.table({"id": [1.5]}), "keys are text"),
        (pa.table({"id": [1], "x": [b"x"]}), "no form in JSON"),
        (pa.table({"id": [1], "x": pa.array([1], pa.duration("s"))}), "no form in JSON"),
        (pa.table([[1], [2], [3]], names=["id", "x", "x"]), "two columns are named"),
    ):
        with pytest.raises(bolide.InvalidInput) as caught:
            c.import_arrow(table, key="id")
        assert part in str(caught.value)
    assert c.count() == 0
    with pytest.raises(bolide.InvalidInput, match="convert the column"):
        db.create_collection("b", keys="bytes").import_arrow(pa.table({"id": [1]}), key="id")
    with pytest.raises(Exception):
        c.import_arrow([1, 2], key="id")


def test_exported_tables_are_imported_unchanged(db: bolide.Db) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    source = random.Random(seed)
    c = db.create_collection("c")
    for number in range(3_000):
        record = {"n": number, "x": source.uniform(-1, 1), "s": source.choice(["a", "é", "\n"]), "l": [1, None, 3]}
        for name in source.sample(sorted(record), source.randrange(4)):
            del record[name]
        c[f"k{number}"] = record
    copy = db.create_collection("copy")
    columns = {"_key": "string", "n": "int64", "x": "float64", "s": "string", "l": "list<int64>", "_sequence": "int64"}
    assert copy.import_arrow(c.arrow(columns=columns), key="_key") == 3_000
    assert dict(copy.items()) == dict(c.items())


def test_sql(db: bolide.Db, c: bolide.Collection) -> None:
    c.delete("k2")
    assert bolide.sql(db, "select _key, i from c order by _key").fetchall() == [("k1", 1.0), ("k3", None)]
    relation = bolide.sql(db, "select sum(i) from c where i >= ?", [1], columns={"c": {"i": "int64"}})
    assert relation.fetchall() == [(1,)]
    with pytest.raises(duckdb.Error):
        bolide.sql(db, "select * from none")
