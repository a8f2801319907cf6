"""A state machine: a database against a dict, with indexes, snapshots, transactions and reopening.

BOLIDE_EXAMPLES is the number of histories.
"""

import os
import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, precondition, rule

import bolide

KEYS = st.one_of(st.integers(-3, 3), st.sampled_from(["a", "b", "é"]))
RECORDS = st.fixed_dictionaries(
    {}, optional={"g": st.sampled_from([0, 1, 1.0, "1", None]), "tags": st.lists(st.sampled_from(["a", "b"]), max_size=2)}
)


def sort_key(key: object) -> tuple:
    return (isinstance(key, str), key)


def with_value(records: dict, g: object) -> list:
    def same(value: object) -> bool:
        is_text = isinstance(g, str)
        return isinstance(value, str) == is_text and value is not None and value == g

    return sorted((key for key, record in records.items() if "g" in record and same(record["g"])), key=sort_key)


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.path = Path(tempfile.mkdtemp()) / "db"
        self.records: dict = {}
        self.snapshots: list = []
        self.open()

    snapshots_taken = Bundle("snapshots_taken")

    def open(self) -> None:
        self.db = bolide.open(self.path, memtable_bytes=1 << 16, background_threads=0)
        self.c = self.db.create_collection("c", indexes=["tags[*]"], exist_ok=True)

    def teardown(self) -> None:
        assert self.db.check(deep=True).is_sound
        self.db.close()
        shutil.rmtree(self.path.parent)

    @rule(key=KEYS, record=RECORDS)
    def put(self, key: object, record: dict) -> None:
        self.c[key] = record
        self.records[key] = record

    @rule(key=KEYS)
    def delete(self, key: object) -> None:
        self.c.delete(key)
        self.records.pop(key, None)

    @rule(pairs=st.lists(st.tuples(KEYS, RECORDS), max_size=5))
    def put_many(self, pairs: list) -> None:
        assert self.c.put_many(pairs) == len(pairs)
        self.records.update(pairs)

    @rule(start=st.integers(-3, 3), end=st.integers(-3, 3))
    def delete_range(self, start: int, end: int) -> None:
        self.c.delete_range(start, end)
        for key in [key for key in self.records if isinstance(key, int) and start <= key < end]:
            del self.records[key]

    @rule(writes=st.lists(st.tuples(KEYS, st.none() | RECORDS), max_size=4), commits=st.booleans(), is_batch=st.booleans())
    def write_together(self, writes: list, commits: bool, is_batch: bool) -> None:
        changed = dict(self.records)
        together = self.db.batch() if is_batch else self.db.transaction()
        for key, record in writes:
            if record is None:
                together.delete(self.c, key)
                changed.pop(key, None)
            else:
                together.put(self.c, key, record)
                changed[key] = record
        if not is_batch:
            for g in (1, "1"):
                found = together.find(self.c, bolide.eq("g", g)).all()
                assert sorted((answer.key for answer in found), key=sort_key) == with_value(changed, g)
        if commits:
            together.commit()
            self.records = changed

    @rule(kind=st.sampled_from(["composite", "lazy", "eager", "next", "embedded", "ps-tree"]))
    def create_index(self, kind: str) -> None:
        if "g" in [index.name for index in self.c.indexes]:
            self.c.drop_index("g")
        self.c.create_index(f"g:{kind}")

    @rule()
    def flush(self) -> None:
        self.db.flush()

    @rule()
    def compact(self) -> None:
        self.db.compact()

    @rule(target=snapshots_taken)
    def snapshot(self) -> tuple:
        taken = (self.db.snapshot(), dict(self.records), self.db)
        return taken

    @rule(taken=snapshots_taken)
    def read_snapshot(self, taken: tuple) -> None:
        snapshot, records, db = taken
        if db is self.db:
            assert dict(self.c.items(at=snapshot)) == records
            found = self.c.find(g=1, at=snapshot).all()
            assert sorted((answer.key for answer in found), key=sort_key) == with_value(records, 1)

    @precondition(lambda self: True)
    @rule()
    def reopen(self) -> None:
        self.db.close()
        self.open()

    @rule(value=st.sampled_from([("set", 1), ("delete", 0), ("delete", "1")]))
    def change_where(self, value: tuple) -> None:
        change, g = value
        keys = with_value(self.records, g)
        if change == "delete":
            assert self.c.delete_where(bolide.eq("g", g)).changed == len(keys)
            for key in keys:
                del self.records[key]
        else:
            self.c.update_where(lambda key, record: {**record, "seen": True}, bolide.eq("g", g))
            for key in keys:
                self.records[key] = {**self.records[key], "seen": True}

    @invariant()
    def reads_are_those_of_the_dict(self) -> None:
        items = list(self.c.items())
        assert items == sorted(self.records.items(), key=lambda item: sort_key(item[0]))
        for key in (-1, "a"):
            assert self.c.get(key) == self.records.get(key)
        for g in (0, 1, "1"):
            found = [answer.key for answer in self.c.find(g=g)]
            assert sorted(found, key=sort_key) == with_value(self.records, g)
            assert self.c.count(g=g) == len(found)
        tagged = [key for key, record in self.records.items() if "a" in record.get("tags", [])]
        found = [answer.key for answer in self.c.find(bolide.eq("tags[*]", "a"))]
        assert sorted(found, key=sort_key) == sorted(tagged, key=sort_key)


TestMachine = Machine.TestCase
TestMachine.settings = settings(
    max_examples=int(os.environ.get("BOLIDE_EXAMPLES", "40")), stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True
)
