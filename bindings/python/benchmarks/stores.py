"""One adapter for each store. All take the same records, and none syncs a single write to the disk.

A store without indexes keeps a hand-made one: an entry ``author, inverted number of the write`` with the key of the
record, in the same batch as the record.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from records import FIELDS, THREE, Posts, key_of

BATCH = 2_000
NEWEST = 10
RANGE = 100
MAX_WRITES = 1 << 40


def batches(pairs: list[Any]) -> Iterator[list[Any]]:
    return (pairs[at : at + BATCH] for at in range(0, len(pairs), BATCH))


def posting(author: str, write: int) -> bytes:
    return b"i\0" + author.encode() + b"\0" + (MAX_WRITES - write).to_bytes(8, "big")


class Store:
    """Operations that a store does not have are not measured: they are None."""

    name = ""
    #: The package, and the module that a program imports.
    module = ""
    imported: str | None = None
    arrow_three: Callable[[], int] | None = None
    arrow_all: Callable[[], int] | None = None

    def __init__(self, path: Path) -> None:
        self.path, self.writes = path, 0
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)

    def load(self, posts: Posts) -> None:
        """Imports all records, with the index."""
        raise NotImplementedError

    def settle(self) -> None:
        """Waits for what the import has left to do."""

    def get(self, key: str) -> bytes:
        """The record as bytes."""
        raise NotImplementedError

    def put(self, key: str, text: bytes, author: str) -> None:
        """One record and its index entry."""
        raise NotImplementedError

    def newest(self, author: str) -> list[Any]:
        """The newest records of an author as dicts."""
        raise NotImplementedError

    def range(self, start: str) -> list[bytes]:
        """Records in key order as bytes."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class Bolide(Store):
    name = "bolide"
    module = "bolide"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        import bolide

        self.db = bolide.open(path / "db", sync="none")
        self.posts = self.db.create_collection("posts", indexes=["author"])
        self.by_author = self.posts.prepare("author", limit=NEWEST)
        self.arrow_three = lambda: self._arrow({name: FIELDS[name] for name in THREE})
        self.arrow_all = lambda: self._arrow(FIELDS)

    def load(self, posts: Posts) -> None:
        self.posts.put_many(posts.pairs())

    def settle(self) -> None:
        self.db.flush()
        self.db.wait_until_settled()

    def get(self, key: str) -> bytes:
        return self.posts.get(key, raw=True)

    def put(self, key: str, text: bytes, author: str) -> None:
        self.posts.put(key, text)

    def newest(self, author: str) -> list[Any]:
        return [answer.record for answer in self.by_author.find(author)]

    def range(self, start: str) -> list[bytes]:
        found = []
        with self.posts.values(start=start, raw=True) as values:
            for value in values:
                found.append(value)
                if len(found) == RANGE:
                    break
        return found

    def _arrow(self, columns: dict[str, str]) -> int:
        import pyarrow

        return sum(batch.num_rows for batch in pyarrow.RecordBatchReader.from_stream(self.posts.arrow(columns=columns)))

    def close(self) -> None:
        self.db.close()


class Sqlite(Store):
    name = "sqlite3"
    module = "sqlite3"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        import sqlite3

        self.db = sqlite3.connect(path / "db.sqlite", isolation_level=None)
        self.db.executescript(
            """
            pragma journal_mode = wal; pragma synchronous = off; pragma cache_size = -262144;
            create table posts (key text not null unique, record text not null);
            create index by_author on posts (json_extract(record, '$.author'));
            """
        )

    def load(self, posts: Posts) -> None:
        pairs = [(key, text.decode()) for key, text in posts.pairs()]
        for batch in batches(pairs):
            self.db.execute("begin")
            self.db.executemany("insert or replace into posts (key, record) values (?, ?)", batch)
            self.db.execute("commit")

    def get(self, key: str) -> bytes:
        return self.db.execute("select record from posts where key = ?", (key,)).fetchone()[0].encode()

    def put(self, key: str, text: bytes, author: str) -> None:
        self.db.execute("insert or replace into posts (key, record) values (?, ?)", (key, text.decode()))

    def newest(self, author: str) -> list[Any]:
        rows = self.db.execute(
            "select record from posts where json_extract(record, '$.author') = ? order by rowid desc limit ?",
            (author, NEWEST),
        )
        return [json.loads(record) for (record,) in rows]

    def range(self, start: str) -> list[bytes]:
        rows = self.db.execute("select record from posts where key >= ? order by key limit ?", (start, RANGE))
        return [record.encode() for (record,) in rows]

    def close(self) -> None:
        self.db.close()


class HandIndexed(Store):
    """What the stores of keys and values have in common: subclasses write batches and scan."""

    def write(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        raise NotImplementedError

    def find(self, key: bytes) -> bytes:
        raise NotImplementedError

    def scan(self, start: bytes, count: int) -> list[tuple[bytes, bytes]]:
        raise NotImplementedError

    def entries(self, key: str, text: bytes, author: str) -> list[tuple[bytes, bytes]]:
        self.writes += 1
        return [(key.encode(), text), (posting(author, self.writes), key.encode())]

    def load(self, posts: Posts) -> None:
        for batch in batches(list(enumerate(posts.records))):
            self.write(
                entry
                for number, record in batch
                for entry in self.entries(key_of(number), posts.texts[number], record["author"])
            )

    def get(self, key: str) -> bytes:
        return self.find(key.encode())

    def put(self, key: str, text: bytes, author: str) -> None:
        # The index entry of a record that is replaced stays, and is skipped by readers: as cheap as it can be.
        self.write(self.entries(key, text, author))

    def newest(self, author: str) -> list[Any]:
        prefix = b"i\0" + author.encode() + b"\0"
        keys = [key for entry, key in self.scan(prefix, NEWEST) if entry.startswith(prefix)]
        return [json.loads(self.find(key)) for key in keys]

    def range(self, start: str) -> list[bytes]:
        return [text for _, text in self.scan(start.encode(), RANGE)]


class Lmdb(HandIndexed):
    name = "lmdb"
    module = "lmdb"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        import lmdb

        self.db = lmdb.open(str(path / "db"), map_size=1 << 36, sync=False, writemap=False)

    def write(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        with self.db.begin(write=True) as transaction:
            for key, value in entries:
                transaction.put(key, value)

    def find(self, key: bytes) -> bytes:
        with self.db.begin() as transaction:
            return transaction.get(key)

    def scan(self, start: bytes, count: int) -> list[tuple[bytes, bytes]]:
        found = []
        with self.db.begin() as transaction, transaction.cursor() as cursor:
            if cursor.set_range(start):
                for entry in cursor:
                    found.append(entry)
                    if len(found) == count:
                        break
        return found

    def close(self) -> None:
        self.db.close()


class Rocksdict(HandIndexed):
    name = "rocksdict"
    module = "rocksdict"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        import rocksdict

        self.rocksdict = rocksdict
        self.db = rocksdict.Rdict(str(path / "db"), rocksdict.Options(raw_mode=True))

    def write(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        batch = self.rocksdict.WriteBatch(raw_mode=True)
        for key, value in entries:
            batch.put(key, value)
        self.db.write(batch)

    def find(self, key: bytes) -> bytes:
        return self.db[key]

    def scan(self, start: bytes, count: int) -> list[tuple[bytes, bytes]]:
        found = []
        for entry in self.db.items(from_key=start):
            found.append(entry)
            if len(found) == count:
                break
        return found

    def settle(self) -> None:
        self.db.flush()

    def close(self) -> None:
        self.db.close()


class Plyvel(HandIndexed):
    name = "plyvel"
    module = "plyvel"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        import plyvel

        self.db = plyvel.DB(str(path / "db"), create_if_missing=True)

    def write(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        with self.db.write_batch() as batch:
            for key, value in entries:
                batch.put(key, value)

    def find(self, key: bytes) -> bytes:
        return self.db.get(key)

    def scan(self, start: bytes, count: int) -> list[tuple[bytes, bytes]]:
        found = []
        with self.db.iterator(start=start) as iterator:
            for entry in iterator:
                found.append(entry)
                if len(found) == count:
                    break
        return found

    def close(self) -> None:
        self.db.close()


class Duckdb(Store):
    name = "duckdb"
    module = "duckdb"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        import duckdb

        self.db = duckdb.connect(str(path / "db.duckdb"))
        types = {"int64": "bigint", "string": "varchar", "timestamp[ms]": "bigint", "float64": "double", "bool": "boolean"}
        columns = ", ".join(f"{name} {types.get(of, 'varchar[]')}" for name, of in FIELDS.items())
        self.db.execute(f"create table posts (key varchar primary key, record varchar, {columns})")
        self.db.execute("create sequence write_number")
        self.arrow_three = lambda: self._arrow(", ".join(THREE))
        self.arrow_all = lambda: self._arrow(", ".join(FIELDS))

    def load(self, posts: Posts) -> None:
        import pyarrow

        for batch in batches(list(range(posts.count))):
            rows = [posts.records[number] for number in batch]
            names = {name: [row[name] for row in rows] for name in FIELDS}
            texts = [posts.texts[number].decode() for number in batch]
            columns = pyarrow.table({"key": [key_of(number) for number in batch], "record": texts, **names})
            self.db.register("columns_of_batch", columns)
            self.db.execute("insert into posts select * from columns_of_batch")
            self.db.unregister("columns_of_batch")
        self.db.execute("create index by_author on posts (author)")

    def get(self, key: str) -> bytes:
        found = self.db.execute("select record from posts where key = ?", (key,)).fetchone()
        return found[0].encode()

    def put(self, key: str, text: bytes, author: str) -> None:
        record = json.loads(text)
        values = [key, text.decode(), *(record[name] for name in FIELDS)]
        places = ", ".join("?" for _ in values)
        self.db.execute(f"insert or replace into posts values ({places})", values)

    def newest(self, author: str) -> list[Any]:
        rows = self.db.execute(
            "select record from posts where author = ? order by created_ms desc limit ?", (author, NEWEST)
        )
        return [json.loads(record) for (record,) in rows.fetchall()]

    def range(self, start: str) -> list[bytes]:
        rows = self.db.execute("select record from posts where key >= ? order by key limit ?", (start, RANGE))
        return [record.encode() for (record,) in rows.fetchall()]

    def _arrow(self, columns: str) -> int:
        relation = self.db.sql(f"select {columns} from posts")
        import pyarrow

        return sum(batch.num_rows for batch in pyarrow.RecordBatchReader.from_stream(relation))

    def close(self) -> None:
        self.db.close()


class Slatedb(HandIndexed):
    """Asynchronous: each call runs an event loop to its end, as a program without one has to."""

    name = "slatedb"
    module = "slatedb"
    imported = "slatedb.uniffi"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        from slatedb import uniffi

        self.api = uniffi
        self.loop = asyncio.new_event_loop()
        store = uniffi.ObjectStore.resolve("file:///")
        folder = str((path / "db").resolve()).lstrip("/")
        self.db = self.loop.run_until_complete(uniffi.DbBuilder(folder, store).build())

    def write(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        batch = self.api.WriteBatch()
        for key, value in entries:
            batch.put(key, value)
        self.loop.run_until_complete(self.db.write(batch))

    def find(self, key: bytes) -> bytes:
        return self.loop.run_until_complete(self.db.get(key))

    async def _scan(self, start: bytes, count: int) -> list[tuple[bytes, bytes]]:
        found: list[tuple[bytes, bytes]] = []
        keys = self.api.KeyRange(start=start, start_inclusive=True, end=None, end_inclusive=False)
        scan = await self.db.scan(keys)
        while len(found) < count and (row := await scan.next()) is not None:
            found.append((row.key, row.value))
        return found

    def scan(self, start: bytes, count: int) -> list[tuple[bytes, bytes]]:
        return self.loop.run_until_complete(self._scan(start, count))

    def settle(self) -> None:
        self.loop.run_until_complete(self.db.flush())

    def close(self) -> None:
        self.loop.run_until_complete(self.db.shutdown())
        self.loop.close()


STORES: list[type[Store]] = [Bolide, Sqlite, Lmdb, Rocksdict, Plyvel, Duckdb, Slatedb]
