"""The native module. Docstrings are those of the module itself."""

import os
from types import TracebackType
from typing import Any, Callable, Iterable, Iterator, Literal, Mapping, Self, Sequence, TypeVar, final, overload

from bolide._errors import Error
from bolide._types import Condition, Key, Record

_T = TypeVar("_T")
_Value = str | int | float | bool | None
_Sync = Literal["batch", "always", "none"]
_Order = Literal["newest", "oldest", "value", "value-desc"]
_Layout = Literal["leveled", "tiered", "fragmented", "partitioned"]
_Sort = str | Sequence[str]

__all__ = [
    "__version__",
    "Advice",
    "Answer",
    "Answers",
    "ArrowTable",
    "Attribute",
    "Batch",
    "BuildProgress",
    "BulkProgress",
    "CheckReport",
    "Collection",
    "DELETE",
    "Db",
    "Delete",
    "Estimate",
    "Explain",
    "Filter",
    "Index",
    "IndexBuild",
    "PreparedQuery",
    "Records",
    "Savepoint",
    "Snapshot",
    "Summary",
    "Transaction",
    "absent",
    "all_of",
    "any_of",
    "attribute",
    "between",
    "eq",
    "error_of",
    "exists",
    "ge",
    "gt",
    "has_writer",
    "is_null",
    "le",
    "lt",
    "ne",
    "nearest",
    "one_of",
    "open",
    "prefix",
    "repair",
    "where",
    "within",
    "_note_fork",
]

__version__: str
DELETE: Delete

def _note_fork() -> None:
    """Called in the child after a fork: handles of the parent are invalid from now on."""
def open(
    path: str | os.PathLike[str],
    *,
    create: bool = True,
    read_only: bool = False,
    sync: _Sync = "batch",
    memory_bytes: int | None = None,
    cache_bytes: int | None = None,
    row_cache_bytes: int | None = None,
    memtable_bytes: int | None = None,
    background_threads: int | None = None,
    max_open_files: int | None = None,
) -> Db:
    """Opens the database in the directory ``path``, or an empty one in memory for ``":memory:"``.

    Without ``create`` a missing database is an error. With ``read_only`` no byte is changed and no lock is taken: there must
    be no writer. A database in memory cannot be read-only. ``sync`` is ``"batch"`` (one sync serves many writes; a power cut
    may lose the last moments), ``"always"`` or ``"none"``. Sizes are in bytes; their defaults follow the memory of the machine.

    >>> with bolide.open(":memory:") as db:
    ...     db.create_collection("notes").name
    'notes'
    """
def has_writer(path: str | os.PathLike[str]) -> bool:
    """Whether a database is open for writing now, in this process or another one."""
def repair(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> str:
    """Copies what is intact in a damaged database to a new one in the directory ``target``. Returns a report as text."""
def attribute(path: str) -> Attribute:
    """The attribute at ``path``, for comparisons: ``attribute("total") > 10``."""
def error_of(exception: BaseException) -> Error | None:
    """The error of Bolide because of which reading an Arrow stream failed, as an exception of its class; ``None`` if the cause
    is another one. Consumers of a stream raise exceptions of their own, which contain the text alone.

    >>> import pyarrow
    >>> table = pyarrow.RecordBatchReader.from_stream(orders.arrow(columns={"total": "float64"}))
    >>> db.close()
    >>> try:
    ...     table.read_all()
    ... except Exception as error:
    ...     print(type(bolide.error_of(error) or error).__name__)
    Closed
    """
def eq(path: str, value: _Value) -> Filter:
    """A value of the attribute equals ``value``."""
def ne(path: str, value: _Value) -> Filter:
    """No value of the attribute equals ``value``; true for an absent attribute."""
def lt(path: str, value: _Value) -> Filter:
    """A value of the attribute is less than ``value``."""
def le(path: str, value: _Value) -> Filter:
    """A value of the attribute is at most ``value``."""
def gt(path: str, value: _Value) -> Filter:
    """A value of the attribute is greater than ``value``."""
def ge(path: str, value: _Value) -> Filter:
    """A value of the attribute is at least ``value``."""
def between(
    path: str, low: _Value, high: _Value, *, include: Literal["both", "low", "high", "neither"] = "both"
) -> Filter:
    """One value of the attribute is from ``low`` to ``high``. ``include`` names the ends that belong to it: ``"both"``,
    ``"low"``, ``"high"`` or ``"neither"``.

    >>> orders.count(bolide.between("total", 10, 20, include="low"))
    2
    """
def one_of(path: str, values: Iterable[_Value]) -> Filter:
    """A value of the attribute equals one of ``values``, at most 10,000."""
def prefix(path: str, text: str) -> Filter:
    """A string of the attribute starts with ``text``."""
def exists(path: str) -> Filter:
    """The attribute has a value, which may be null."""
def absent(path: str) -> Filter:
    """The attribute has no value."""
def is_null(path: str) -> Filter:
    """The attribute has the value null."""
def within(path: str, min_x: float, min_y: float, max_x: float, max_y: float) -> Filter:
    """A point or rectangle of the attribute, ``rect(PATH)`` or ``point(X,Y)``, intersects this rectangle.

    >>> orders.count(bolide.within("point(at.x,at.y)", 0, 50, 1, 52))
    1
    """
def nearest(path: str, x: float, y: float) -> Filter:
    """Records with a point or rectangle at the attribute, the nearest to this point first.

    >>> orders.find(bolide.nearest("point(at.x,at.y)", 0, 51), limit=1).all()[0].key
    'o1'
    """
def where(text: str) -> Filter:
    """The filter of a text: ``where('state = "open" and total > 10')``.

    >>> [answer.key for answer in orders.find(bolide.where('state = "open" or total > 100'))]
    ['o3', 'o1']
    """
def all_of(*filters: Filter | str) -> Filter:
    """True if all of ``filters`` are; true without any."""
def any_of(*filters: Filter | str) -> Filter:
    """True if one of ``filters`` is; false without any."""
@final
class Filter:
    """A condition on records; joined with others by ``&``, ``|`` and ``~``.

    >>> filter = bolide.eq("state", "open") & ~bolide.eq("customer", "ada")
    >>> str(filter)
    'state = "open" and not customer = "ada"'
    >>> [answer.key for answer in orders.find(filter)]
    ['o3']
    """
    def __and__(self, value: Filter | str, /) -> Filter: ...
    def __or__(self, value: Filter | str, /) -> Filter: ...
    def __rand__(self, value: str, /) -> Filter: ...
    def __ror__(self, value: str, /) -> Filter: ...
    def __invert__(self) -> Filter: ...
    def __bool__(self) -> bool: ...
    def __eq__(self, value: object, /) -> bool: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class Attribute:
    """An attribute, which comparisons turn into filters.

    >>> total = bolide.attribute("total")
    >>> str((total > 10) & (total <= 20))
    'total > 10 and total <= 20'
    """
    def __eq__(self, value: _Value, /) -> Filter: ...  # type: ignore[override]
    def __ne__(self, value: _Value, /) -> Filter: ...  # type: ignore[override]
    def __lt__(self, value: _Value, /) -> Filter: ...
    def __le__(self, value: _Value, /) -> Filter: ...
    def __gt__(self, value: _Value, /) -> Filter: ...
    def __ge__(self, value: _Value, /) -> Filter: ...
    def __hash__(self) -> int: ...
    @property
    def path(self) -> str:
        """The path."""

@final
class Delete:
    """What the function of `update_where` returns to delete a record."""

@final
class Answer:
    """One answer: a key, the number of the write that put the record, and the record or selected values."""
    @property
    def key(self) -> Any:
        """The primary key."""
    @property
    def sequence(self) -> int:
        """The sequence number of the write that put the record."""
    @property
    def record(self) -> Any:
        """The record: a ``dict``, or ``bytes`` in a collection of bytes. ``None`` for a query of keys or selected values."""
    @property
    def raw(self) -> bytes | None:
        """The record as it is stored."""
    @property
    def values(self) -> dict[str, list[Any]]:
        """The selected values: for each path the list of them, empty for an absent attribute."""
    def __getitem__(self, key: str, /) -> Any: ...

@final
class Explain:
    """The execution report of a query: its plan and its costs.

    >>> explain = orders.find(state="open").explain
    >>> explain.index, explain.is_full_scan
    ('state', False)
    """
    @property
    def index(self) -> str | None:
        """The index that was used; ``None`` for a scan."""
    @property
    def is_full_scan(self) -> bool:
        """Whether all records were read."""
    @property
    def answers(self) -> int:
        """The number of answers."""
    @property
    def candidates(self) -> int:
        """The number of candidates that the index proposed."""
    def to_dict(self) -> dict[str, Any]:
        """The report as a ``dict``."""

@final
class Answers:
    """The answers to a query: an iterator, read once, in order.

    A query with a limit up to 1,024 is executed at once. Any other holds a snapshot until it is read to its end or
    closed: use it in a ``with`` statement if it may end earlier.

    >>> with orders.find("total > 10") as answers:
    ...     sorted(answer.key for answer in answers)
    ['o1', 'o3']
    """
    def __iter__(self) -> Self: ...
    def __next__(self) -> Answer: ...
    def all(self) -> list[Answer]:
        """All answers that were not read yet, as a list."""
    @property
    def explain(self) -> Explain:
        """The report of the execution, of what was read so far."""
    @property
    def next_token(self) -> str | None:
        """The token for the answers after these, as ``find(after=…)`` takes it; ``None`` if there are none. All answers have to
        be read before.
        """
    def close(self) -> None:
        """Ends the iteration and releases its snapshot. Does nothing the second time."""
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: object) -> None: ...

@final
class PreparedQuery:
    """A query that is prepared once and runs for many values of an attribute; made by ``Collection.prepare``.

    It saves the choice of the index and the memory of a run. One thread runs it at a time: threads that run it together
    prepare one each. Close it after the last run, or use it in a ``with`` statement.

    >>> with orders.prepare("customer", keys_only=True) as by_customer:
    ...     [answer.key for answer in by_customer.find("bob")]
    ['o3', 'o2']
    """
    def find(self, value: _Value, *, at: Snapshot | None = None) -> list[Answer]:
        """The answers for ``value``, at a snapshot with ``at``."""
    @property
    def explain(self) -> Explain | None:
        """The report of the last run; ``None`` before the first one and after one that failed."""
    def close(self) -> None:
        """Releases the indexes that it has pinned. Does nothing the second time."""
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: object) -> None: ...

@final
class Records(Iterator[Any]):
    """Records in key order: an iterator, which holds a snapshot until it is read to its end or closed.

    >>> with orders.keys() as keys:
    ...     next(keys)
    'o1'
    """
    def __iter__(self) -> Self: ...
    def __next__(self) -> Any: ...
    def close(self) -> None:
        """Ends the iteration and releases its snapshot. Does nothing the second time."""
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: object) -> None: ...

@final
class Snapshot:
    """All collections as they were at one moment.

    >>> with db.snapshot() as before:
    ...     orders.put("o1", {"state": "done"})
    ...     orders.get("o1", at=before)["state"], orders["o1"]["state"]
    ('open', 'done')
    """
    @property
    def sequence(self) -> int:
        """The sequence number of the last visible write."""
    def close(self) -> None:
        """Releases the snapshot, so that compactions may drop its versions. Does nothing the second time."""
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: object) -> None: ...

@final
class Batch:
    """Writes over any collections of one database that take effect together or not at all.

    In a ``with`` statement it is committed at the end, and discarded after an exception.

    >>> with db.batch(sync="always") as batch:
    ...     batch.put(orders, "o4", {"state": "open"})
    ...     batch.delete(orders, "o1")
    >>> "o4" in orders, "o1" in orders
    (True, False)
    """
    def put(self, collection: Collection, key: Key, record: Record) -> None:
        """Puts ``record`` under ``key`` of ``collection``."""
    def delete(self, collection: Collection, key: Key) -> None:
        """Deletes the record under ``key`` of ``collection``, if there is one."""
    def delete_range(
        self, collection: Collection, start: Key | None = None, end: Key | None = None, *, prefix: Key | None = None
    ) -> None:
        """Deletes the records with keys from ``start`` to ``end``, without ``end``, or with ``prefix``."""
    def expect(
        self, collection: Collection, key: Key, *, present: bool | None = None, sequence: int | None = None
    ) -> None:
        """Makes the commit depend on the record under ``key``: that there is one (``present=True``), none
        (``present=False``), or that of the write with this ``sequence``. Otherwise the commit fails with ``Conflict``.

        >>> batch = db.batch()
        >>> batch.expect(orders, "o1", present=False)
        >>> batch.commit()
        Traceback (most recent call last):
        ...
        bolide._errors.Conflict: ...
        """
    def commit(self) -> int:
        """Commits all writes; the batch is empty afterwards. Returns the sequence number of the last one."""
    def clear(self) -> None:
        """Discards all writes."""
    def __len__(self) -> int: ...
    def __bool__(self) -> bool: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, _value: BaseException | None, _traceback: TracebackType | None
    ) -> None: ...

@final
class Savepoint:
    """A position among the writes of a transaction."""

@final
class Transaction:
    """Reads at one state and writes that are committed together, if what they depend on is unchanged.

    In a ``with`` statement it is committed at the end, and discarded after an exception. ``Db.transaction(function)`` also
    repeats it after a conflict.

    >>> with db.transaction() as tx:
    ...     order = tx.get(orders, "o1")
    ...     tx.put(orders, "o1", {**order, "state": "paid"})
    >>> orders["o1"]["state"]
    'paid'
    """
    @property
    def sequence(self) -> int:
        """The sequence number of the snapshot."""
    @property
    def memory_bytes(self) -> int:
        """The memory for its writes and for the record of its reads, in bytes."""
    def get(self, collection: Collection, key: Key, *, raw: bool = False) -> Any:
        """The record under ``key``; ``None`` if there is none."""
    def get_for_update(self, collection: Collection, key: Key, *, raw: bool = False) -> Any:
        """As ``get``; the commit also fails under ``isolation="snapshot"`` if another commit has changed the record."""
    def put(self, collection: Collection, key: Key, record: Record) -> None:
        """Puts ``record`` under ``key`` at the commit. Reads of this transaction see it at once."""
    def delete(self, collection: Collection, key: Key) -> None:
        """Deletes the record under ``key`` at the commit, if there is one."""
    def delete_range(
        self, collection: Collection, start: Key | None = None, end: Key | None = None, *, prefix: Key | None = None
    ) -> None:
        """Deletes the records with keys from ``start`` to ``end``, without ``end``, or with ``prefix``, at the commit."""
    def find(
        self,
        collection: Collection,
        filter: Condition = None,
        /,
        *,
        order: _Order | None = None,
        sort: _Sort | None = None,
        limit: int | None = None,
        limit_per_value: int | None = None,
        after: str | None = None,
        index: str | None = None,
        select: Sequence[str] | None = None,
        parts: Sequence[str] | None = None,
        keys_only: bool = False,
        **equal: _Value,
    ) -> Answers:
        """The records that satisfy a filter and all equalities, with the writes of this transaction; see ``Collection.find``."""
    def count(self, collection: Collection, filter: Condition = None, /, **equal: _Value) -> int:
        """How many records satisfy a filter and all equalities."""
    def items(
        self,
        collection: Collection,
        *,
        prefix: Key | None = None,
        start: Key | None = None,
        end: Key | None = None,
        reverse: bool = False,
        raw: bool = False,
    ) -> Records:
        """Keys and records in key order, with the writes of this transaction; see ``Collection.items``."""
    def savepoint(self) -> Savepoint:
        """The present position among the writes."""
    def rollback_to(self, savepoint: Savepoint) -> None:
        """Discards the writes after ``savepoint``."""
    def commit(self) -> int:
        """Commits all writes. Returns the sequence number of the last one."""
    def rollback(self) -> None:
        """Discards all writes. Does nothing after the end of the transaction."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, _value: BaseException | None, _traceback: TracebackType | None
    ) -> None: ...

@final
class BuildProgress:
    """The progress of an index build."""
    @property
    def share(self) -> float:
        """The completed share, from 0 to 1."""
    @property
    def records(self) -> int:
        """Records whose entries are in the index."""
    @property
    def expected_records(self) -> int:
        """The estimated number of records to read."""
    @property
    def entries(self) -> int:
        """Entries that were added."""
    @property
    def malformed(self) -> int:
        """Malformed records that were skipped."""
    @property
    def elapsed(self) -> float:
        """Seconds since the start, or the duration."""
    @property
    def records_per_second(self) -> float:
        """Records that are read per second."""
    @property
    def state(self) -> str:
        """Whether queries use the index: ``"ready"``, or what it waits for."""

@final
class Index:
    """An index of a collection, as it was when it was read.

    >>> index = orders.index("state")
    >>> index.name, index.state, index.progress.share
    ('state', 'ready', 1.0)
    """
    @property
    def name(self) -> str:
        """The name."""
    @property
    def spec(self) -> str:
        """The declaration, as ``create_index`` takes it."""
    @property
    def kind(self) -> str:
        """The kind."""
    @property
    def attributes(self) -> list[str]:
        """The paths of the attributes."""
    @property
    def state(self) -> str:
        """Whether queries use it: ``"ready"``, or what it waits for."""
    @property
    def progress(self) -> BuildProgress:
        """The progress of its build."""
    @property
    def rebuild(self) -> BuildProgress | None:
        """The progress of the index that will replace it; ``None`` without one."""
    @property
    def problem(self) -> str | None:
        """Why its build failed; ``None`` if it did not."""
    @property
    def damage(self) -> str | None:
        """Its damage; ``None`` if there is none."""

@final
class IndexBuild:
    """An index that is built in the background.

    >>> build = orders.create_index("customer:composite", background=True)
    >>> build.wait()
    True
    >>> build.progress.share
    1.0
    """
    @property
    def name(self) -> str:
        """The name of the index."""
    @property
    def progress(self) -> BuildProgress:
        """The progress."""
    @property
    def is_finished(self) -> bool:
        """Whether the build has ended, successfully or not."""
    def wait(self, timeout: float | None = None) -> bool:
        """Waits until queries can use the index, at most ``timeout`` seconds. Returns whether they can. Raises the error of the
        build.
        """

@final
class CheckReport:
    """The result of a check.

    >>> report = db.check(deep=True)
    >>> report.is_sound, report.problems
    (True, [])
    """
    @property
    def is_sound(self) -> bool:
        """Whether there is no problem."""
    @property
    def problems(self) -> list[str]:
        """All problems, as text."""
    @property
    def malformed_records(self) -> int:
        """Records that are malformed: an older version stored them without validation."""
    @property
    def indexes(self) -> list[tuple[str, str]]:
        """Collection and index of each index that was compared with its records."""
    def __bool__(self) -> bool: ...

@final
class Advice:
    """Advice on an index for an attribute.

    >>> advice = orders.advise("customer")
    >>> _ = orders.create_index(advice.spec)
    """
    @property
    def spec(self) -> str:
        """A declaration for ``create_index``."""
    @property
    def kind(self) -> str:
        """The advised kind."""
    @property
    def reasons(self) -> list[str]:
        """The reasons, the decisive one first."""
    @property
    def others(self) -> dict[str, str]:
        """The other kinds, with the reasons against them."""

@final
class Estimate:
    """What a query would cost: the planner's estimate, without reading data."""
    @property
    def records(self) -> int:
        """The number of answers."""
    @property
    def is_exact(self) -> bool:
        """Whether the number is exact."""
    @property
    def micros(self) -> float:
        """The time, in microseconds, with all blocks cached."""
    @property
    def indexes(self) -> list[str]:
        """The indexes of the plan; none for a scan."""

@final
class Summary:
    """The values of an attribute over the answers to a query.

    >>> summary = orders.summarize("total")
    >>> summary.records, summary.sum, summary.min, summary.max
    (3, 42.5, 10, 20)
    """
    @property
    def records(self) -> int:
        """The records that satisfy the query."""
    @property
    def values(self) -> int:
        """The values, equal ones of a record once."""
    @property
    def numbers(self) -> int:
        """The numbers among the values."""
    @property
    def sum(self) -> int | float:
        """The sum of the numbers: an ``int``, which is exact, if all are integers."""
    @property
    def mean(self) -> float | None:
        """The mean of the numbers; ``None`` without any."""
    @property
    def min(self) -> Any:
        """The smallest value; ``None`` without any."""
    @property
    def max(self) -> Any:
        """The largest value; ``None`` without any."""

@final
class BulkProgress:
    """The result of an update or delete of all answers."""
    @property
    def found(self) -> int:
        """Records that satisfied the query."""
    @property
    def changed(self) -> int:
        """Records that were changed; in a dry run those that would be."""
    @property
    def skipped(self) -> int:
        """Records that were skipped, because another thread wrote them meanwhile."""
    @property
    def position(self) -> str | None:
        """A text with which ``resume`` continues the operation; ``None`` if it is complete."""

@final
class ArrowTable:
    """Records as an Arrow stream: an object with ``__arrow_c_stream__``; made by ``Collection.arrow``.

    Each stream runs the query again.
    """
    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...
    def __arrow_c_schema__(self) -> object: ...
    @property
    def columns(self) -> dict[str, str]:
        """Names and types of the columns."""

@final
class Collection:
    """A collection of records under keys, with indexes; made by ``Db.create_collection`` and ``Db.collection``.

    It is used like a ``dict``. Records of JSON are ``dict`` objects; records of bytes are ``bytes``.

    >>> orders["o4"] = {"state": "open"}
    >>> orders["o4"]
    {'state': 'open'}
    >>> del orders["o4"]
    >>> "o4" in orders
    False
    """
    @property
    def name(self) -> str:
        """The name."""
    @property
    def indexes(self) -> list[Index]:
        """The indexes, in the order of their creation."""
    def put(self, key: Key, record: Record, *, sync: _Sync | str | None = None) -> None:
        """Puts ``record`` under ``key`` and replaces an existing record.

        A record of JSON is a ``dict``, or ``bytes`` or ``str`` of JSON text. ``sync`` is as for ``Db.batch``.

        >>> orders.put("o4", {"state": "open", "total": 7})
        >>> orders.put("o5", b'{"state":"open"}', sync="always")
        """
    def put_many(
        self, pairs: Iterable[tuple[Key, Record]] | Mapping[Any, Any], *, sync: _Sync | str | None = None
    ) -> int:
        """Puts all pairs of key and record of ``pairs``, an iterable or a mapping, in batches of 4 MiB. Returns their number.
        Each batch takes effect as a whole; after an error, those before it stay.

        >>> orders.put_many((f"n{number}", {"total": number}) for number in range(3))
        3
        """
    def get(self, key: Key, default: Any = None, *, raw: bool = False, at: Snapshot | None = None) -> Any:
        """The record under ``key``, or ``default``. With ``raw`` it is returned as ``bytes``, as it is stored; with ``at`` it is
        that of a snapshot.

        >>> orders.get("o1")["total"], orders.get("o9", {}), orders.get("o2", raw=True)
        (12.5, {}, b'{"state":"done","customer":"bob","total":10}')
        """
    def multi_get(self, keys: Iterable[Key], *, raw: bool = False) -> list[Any]:
        """The records under ``keys``, in their order, all at one moment; ``None`` for those that do not exist.

        >>> [record and record["total"] for record in orders.multi_get(["o1", "o9", "o2"])]
        [12.5, None, 10]
        """
    def delete(self, key: Key, *, sync: _Sync | str | None = None) -> None:
        """Deletes the record under ``key``. A missing record is no error, and is not looked up."""
    def delete_range(
        self, start: Key | None = None, end: Key | None = None, *, prefix: Key | None = None
    ) -> None:
        """Deletes the records with keys from ``start`` to ``end``, without ``end``, or with ``prefix``, in constant time.

        >>> orders.delete_range("o1", "o3")
        >>> list(orders)
        ['o3']
        """
    def delete_where(
        self,
        filter: Condition = None,
        /,
        *,
        batch: int = 1000,
        resume: str | None = None,
        dry_run: bool = False,
        progress: Callable[[BulkProgress], object] | None = None,
        **equal: _Value,
    ) -> BulkProgress:
        """Deletes the records that satisfy a filter and all equalities, in atomic batches of ``batch`` records.

        ``progress`` is called with a ``BulkProgress`` after each batch, and stops the operation by returning ``False``. Its
        ``position`` is a text with which ``resume`` continues, with the same filter, also in another process. ``dry_run``
        counts without deleting.

        >>> first = orders.delete_where("total >= 0", batch=2, progress=lambda done: False)
        >>> first.changed, orders.delete_where("total >= 0", resume=first.position).changed
        (2, 1)
        """
    def update_where(
        self,
        function: Callable[[Any, Any], Any],
        filter: Condition = None,
        /,
        *,
        batch: int = 1000,
        resume: str | None = None,
        dry_run: bool = False,
        progress: Callable[[BulkProgress], object] | None = None,
        **equal: _Value,
    ) -> BulkProgress:
        """Changes the records that satisfy a filter and all equalities, in atomic batches of ``batch`` records.

        ``function`` is called with key and record, and returns the new record, ``None`` to leave it unchanged, or
        ``bolide.DELETE``. Records that another thread writes meanwhile are skipped. ``resume``, ``dry_run`` and ``progress``
        are as for :meth:`delete_where`.

        >>> orders.update_where(lambda key, record: {**record, "state": "late"}, "total < 15").changed
        2
        """
    def __getitem__(self, key: Key, /) -> Any: ...
    def __setitem__(self, key: Key, value: Record, /) -> None: ...
    def __delitem__(self, key: Key, /) -> None: ...
    def __contains__(self, key: Key, /) -> bool: ...
    def __iter__(self) -> Records: ...
    def __bool__(self) -> bool: ...
    def find(
        self,
        filter: Condition = None,
        /,
        *,
        order: _Order | None = None,
        sort: _Sort | None = None,
        limit: int | None = None,
        limit_per_value: int | None = None,
        after: str | None = None,
        index: str | None = None,
        select: Sequence[str] | None = None,
        parts: Sequence[str] | None = None,
        keys_only: bool = False,
        at: Snapshot | None = None,
        measure: bool = False,
        **equal: _Value,
    ) -> Answers:
        """The records that satisfy a filter and all equalities, newest first.

        ``filter`` is a ``Filter`` or its text. ``order`` is ``"newest"``, ``"oldest"``, ``"value"`` or ``"value-desc"``;
        ``sort`` is ``"PATH"``, ``"PATH:desc"`` or a list of these. ``limit_per_value`` limits the answers for each value of
        the first range. ``after`` is the token of a page before. ``select`` returns values of attributes instead of records,
        ``parts`` the parts of records at these paths, a ``dict`` by path, ``keys_only`` neither. ``at`` reads a snapshot,
        ``index`` names the index to use, ``measure`` measures times for ``explain``.

        >>> [answer.key for answer in orders.find(state="open", limit=10)]
        ['o3', 'o1']
        >>> page = orders.find(bolide.ge("total", 10), order="value", limit=2)
        >>> [answer.key for answer in page]
        ['o2', 'o1']
        >>> page = orders.find(bolide.ge("total", 10), order="value", limit=2, after=page.next_token)
        >>> [answer["total"] for answer in page], page.next_token
        ([20], None)
        """
    def prepare(
        self,
        path: str,
        filter: Condition = None,
        /,
        *,
        order: _Order | None = None,
        sort: _Sort | None = None,
        limit: int | None = None,
        limit_per_value: int | None = None,
        index: str | None = None,
        select: Sequence[str] | None = None,
        parts: Sequence[str] | None = None,
        keys_only: bool = False,
        **equal: _Value,
    ) -> PreparedQuery:
        """A query that runs for many values of the attribute at ``path``; see ``PreparedQuery``. The other arguments are those of
        :meth:`find`.

        >>> newest = orders.prepare("state", limit=1)
        >>> [[answer.key for answer in newest.find(state)] for state in ("open", "done", "none")]
        [['o3'], ['o2'], []]
        """
    def count(
        self, filter: Condition = None, /, *, at: Snapshot | None = None, index: str | None = None, **equal: _Value
    ) -> int:
        """How many records satisfy a filter and all equalities; without any, the number of records.

        >>> orders.count(), orders.count(state="open"), orders.count("total > 15")
        (3, 2, 1)
        """
    def estimate(self, filter: Condition = None, /, **equal: _Value) -> Estimate:
        """The planner's estimate for a query, without reading data.

        >>> orders.estimate(state="open").indexes
        ['state']
        """
    def summarize(self, path: str, filter: Condition = None, /, **equal: _Value) -> Summary:
        """Number, sum, smallest and largest value of the attribute at ``path``, over a filter and all equalities."""
    def distinct(
        self, path: str, filter: Condition = None, /, *, max: int = 100000, **equal: _Value
    ) -> list[tuple[Any, int]]:
        """The distinct values of the attribute at ``path``, each with its number of records. More than ``max`` are an error.

        >>> orders.distinct("state")
        [('done', 1), ('open', 2)]
        """
    def smallest(self, path: str, filter: Condition = None, /, **equal: _Value) -> Any:
        """The smallest value of the attribute at ``path``; ``None`` without any."""
    def largest(self, path: str, filter: Condition = None, /, **equal: _Value) -> Any:
        """The largest value of the attribute at ``path``; ``None`` without any.

        >>> orders.smallest("total"), orders.largest("total", state="open")
        (10, 20)
        """
    def items(
        self,
        *,
        prefix: Key | None = None,
        start: Key | None = None,
        end: Key | None = None,
        reverse: bool = False,
        raw: bool = False,
        at: Snapshot | None = None,
    ) -> Records:
        """Keys and records in key order: with ``prefix``, from ``start``, before ``end``; from the end with ``reverse``.

        >>> with orders.items(start="o2", reverse=True) as items:
        ...     [(key, record["total"]) for key, record in items]
        [('o3', 20), ('o2', 10)]
        """
    def keys(
        self,
        *,
        prefix: Key | None = None,
        start: Key | None = None,
        end: Key | None = None,
        reverse: bool = False,
        at: Snapshot | None = None,
    ) -> Records:
        """Keys in key order; see :meth:`items`."""
    def values(
        self,
        *,
        prefix: Key | None = None,
        start: Key | None = None,
        end: Key | None = None,
        reverse: bool = False,
        raw: bool = False,
        at: Snapshot | None = None,
    ) -> Records:
        """Records in key order; see :meth:`items`."""
    def index(self, name: str) -> Index:
        """The index of this name."""
    @overload
    def create_index(
        self,
        spec: str,
        *,
        background: Literal[True],
        records_per_second: int | None = None,
        bytes_per_second: int | None = None,
    ) -> IndexBuild:
        """Creates an index, as ``"state"``, ``"total:composite"`` or ``"tags[*]:next"``, and fills it. Other threads read and write
        meanwhile. With ``background`` it returns at once, with an ``IndexBuild`` that reports the progress; otherwise when queries
        can use the index.

        >>> orders.create_index("customer").name
        'customer'
        """
    @overload
    def create_index(
        self,
        spec: str,
        *,
        background: Literal[False] = False,
        records_per_second: int | None = None,
        bytes_per_second: int | None = None,
    ) -> Index: ...
    @overload
    def rebuild_index(
        self,
        name: str,
        *,
        background: Literal[True],
        records_per_second: int | None = None,
        bytes_per_second: int | None = None,
    ) -> IndexBuild:
        """Builds an index again from the records, and replaces the one of this name, which queries use until then. After an
        interrupt the build goes on in the background.
        """
    @overload
    def rebuild_index(
        self,
        name: str,
        *,
        background: Literal[False] = False,
        records_per_second: int | None = None,
        bytes_per_second: int | None = None,
    ) -> Index: ...
    def drop_index(self, name: str) -> None:
        """Drops an index."""
    def advise(
        self,
        path: str,
        *,
        writes: float = 0.5,
        lookups: float = 0.5,
        limit: int = 10,
        space_is_scarce: bool = False,
        keys_only: bool = False,
    ) -> Advice:
        """Advises an index for the attribute at ``path``, with the reasons. Reads all records.

        ``writes`` is the expected share of writes among all operations, ``lookups`` that of lookups by the attribute among
        reads, ``limit`` the number of answers of a lookup (0 for all).
        """
    def check_indexes(self) -> CheckReport:
        """Compares all indexes with the records."""
    def compact(self) -> None:
        """Merges all sorted runs of the collection and its indexes."""
    def set_layout(self, layout: _Layout | str) -> None:
        """Changes the layout, by compactions in the background."""
    def arrow(
        self,
        filter: Condition = None,
        /,
        *,
        columns: Mapping[str, str] | Sequence[str] | None = None,
        order: _Order | None = None,
        sort: _Sort | None = None,
        limit: int | None = None,
        index: str | None = None,
        at: Snapshot | None = None,
        batch_rows: int = 8192,
        threads: int | None = None,
        **equal: _Value,
    ) -> ArrowTable:
        """The records that satisfy a filter and all equalities as an Arrow stream: an object with ``__arrow_c_stream__``, which
        pandas, polars, pyarrow and duckdb read. It is lazy: each stream is a new query, in bounded batches. All records of a
        collection are read by ``threads`` threads, by default as many as there are cores, up to 8; their order is that of the
        keys.

        ``columns`` maps names to types: ``int64``, ``float64``, ``string``, ``bool``, ``date``, ``timestamp`` (ISO text),
        ``timestamp[ms]`` (integers), ``json``, ``list<…>`` of these; a name is a path as ``user.id``, or ``_key``,
        ``_sequence``, ``_record`` (the whole record). A list of names, or ``None`` for all, infers the types from a sample. A
        value of another type than that of its column is NULL.

        >>> table = orders.arrow(state="open", columns={"_key": "string", "total": "float64"})
        >>> table.columns
        {'_key': 'string', 'total': 'float64'}
        >>> import pyarrow
        >>> pyarrow.table(table).to_pydict()
        {'_key': ['o3', 'o1'], 'total': [20.0, 12.5]}
        """
    def import_arrow(self, data: Any, *, key: str, sync: _Sync | str | None = None) -> int:
        """Puts the rows of ``data``, any object with ``__arrow_c_stream__`` or ``__arrow_c_array__`` (pandas, polars, pyarrow,
        duckdb), as records whose keys are in the column ``key``, in batches of 4 MiB. Returns the number of rows.

        A NULL is no field. The columns ``_key`` and ``_sequence`` are not fields of the records. Dates and times become ISO
        text.

        >>> import pyarrow
        >>> orders.import_arrow(pyarrow.table({"id": ["p1", "p2"], "total": [1, None]}), key="id")
        2
        >>> orders["p1"], orders["p2"]
        ({'id': 'p1', 'total': 1}, {'id': 'p2'})
        """

@final
class Db:
    """An open database; made by :func:`bolide.open`.

    All methods may be called from many threads. In a ``with`` statement it is closed at the end.
    """
    @property
    def path(self) -> str:
        """The path with which it was opened."""
    @property
    def read_only(self) -> bool:
        """Whether it was opened for reading only."""
    @property
    def closed(self) -> bool:
        """Whether it is closed."""
    @property
    def collections(self) -> list[str]:
        """The names of all collections, in order.

        >>> db.collections
        ['orders']
        """
    def collection(self, name: str) -> Collection:
        """The collection of this name.

        >>> db.collection("orders").name
        'orders'
        """
    def __getitem__(self, key: str, /) -> Collection: ...
    def __contains__(self, key: str, /) -> bool: ...
    def create_collection(
        self,
        name: str,
        *,
        indexes: Sequence[str] | None = None,
        keys: Literal["typed", "bytes"] | str = "typed",
        records: Literal["json", "bytes"] | str = "json",
        layout: _Layout | str = "leveled",
        compression: Literal["lz4", "zstd", "none"] | str = "lz4",
        exist_ok: bool = False,
    ) -> Collection:
        """Creates a collection with indexes.

        ``keys`` is ``"typed"`` (``str`` and ``int``, which sort as numbers) or ``"bytes"``, ``records`` is ``"json"`` or
        ``"bytes"``, ``layout`` is ``"leveled"``, ``"tiered"``, ``"fragmented"`` or ``"partitioned"``, ``compression`` is
        ``"lz4"``, ``"zstd"`` or ``"none"``. With ``exist_ok`` an existing collection is returned as it is.

        >>> posts = db.create_collection("posts", indexes=["user", "tags[*]"], exist_ok=True)
        >>> [index.name for index in posts.indexes]
        ['user', 'tags[*]']
        """
    def drop_collection(self, name: str) -> None:
        """Drops a collection with its records and indexes.

        >>> db.drop_collection("orders")
        >>> db.collections
        []
        """
    def batch(self, *, sync: _Sync | str | None = None) -> Batch:
        """An empty batch of writes. ``sync`` is ``"always"``, ``"batch"`` or ``"none"``; without it, that of the database."""
    @overload
    def transaction(
        self,
        function: None = None,
        *,
        isolation: Literal["serializable", "snapshot"] = "serializable",
        sync: _Sync | None = None,
        max_bytes: int | None = None,
        retries: int = 100,
    ) -> Transaction:
        """Without ``function``, a new transaction, for a ``with`` statement. Otherwise the result of ``function``, which is
        called with a transaction that is committed afterwards; after a conflict it is called again in a new one, at most
        ``retries`` times.

        >>> def pay(tx):
        ...     order = tx.get(orders, "o1")
        ...     tx.put(orders, "o1", {**order, "state": "paid"})
        ...     return order["total"]
        >>> db.transaction(pay)
        12.5
        """
    @overload
    def transaction(
        self,
        function: Callable[[Transaction], _T],
        *,
        isolation: Literal["serializable", "snapshot"] = "serializable",
        sync: _Sync | None = None,
        max_bytes: int | None = None,
        retries: int = 100,
    ) -> _T: ...
    def snapshot(self) -> Snapshot:
        """A snapshot of all collections as they are now."""
    def sync(self) -> None:
        """Syncs all writes so far: a power cut cannot lose them."""
    def flush(self) -> None:
        """Writes all memtables to sstables."""
    def compact(self) -> None:
        """Merges all sorted runs of all collections and indexes. After an interrupt, as by Ctrl-C, the merge goes on in the
        background, as do ``flush``, ``checkpoint`` and the others that only wait for the work of the engine.
        """
    def wait_until_settled(self) -> None:
        """Waits until no flush or compaction is due."""
    def checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Copies the database as it is now to a new directory."""
    def check(self, *, deep: bool = False) -> CheckReport:
        """Reads all files and verifies their checksums; with ``deep`` also compares all indexes with their records."""
    def stats(self) -> dict[str, Any]:
        """Sizes and counters, as a ``dict``.

        >>> db.stats()["collections"][0]["name"]
        'orders'
        """
    def close(self) -> None:
        """Closes the database, after calls of other threads have ended. Its collections, iterators, snapshots and transactions
        raise ``Closed`` from now on. Does nothing the second time. Inside a call of this thread, in the function of
        ``update_where`` or in a signal handler, it raises ``Conflict`` and closes nothing.
        """
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: object) -> None: ...
