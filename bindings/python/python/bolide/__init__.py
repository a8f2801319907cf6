"""Bolide: an embedded key-value store whose secondary indexes are first class.

>>> import bolide
>>> db = bolide.open(":memory:")
>>> orders = db.create_collection("orders", indexes=["state", "tags[*]"])
>>> orders["o1"] = {"state": "open", "total": 12.5, "tags": ["new"]}
>>> [answer.record for answer in orders.find(state="open", limit=10)]
[{'state': 'open', 'total': 12.5, 'tags': ['new']}]
>>> db.close()
"""

import os as _os

from bolide._bolide import (
    DELETE,
    Advice,
    Answer,
    Answers,
    ArrowTable,
    Attribute,
    Batch,
    BuildProgress,
    BulkProgress,
    CheckReport,
    Collection,
    Db,
    Delete,
    Estimate,
    Explain,
    Filter,
    Index,
    IndexBuild,
    PreparedQuery,
    Records,
    Savepoint,
    Snapshot,
    Summary,
    Transaction,
    __version__,
    _note_fork,
    absent,
    all_of,
    any_of,
    attribute,
    between,
    eq,
    error_of,
    exists,
    ge,
    gt,
    has_writer,
    is_null,
    le,
    lt,
    ne,
    nearest,
    one_of,
    open,
    prefix,
    repair,
    where,
    within,
)
from bolide._errors import (
    Closed,
    Conflict,
    Corruption,
    Error,
    Expired,
    ForkError,
    InternalError,
    Interrupted,
    InvalidInput,
    IoError,
    LimitExceeded,
    Locked,
    NoSpace,
    NotFound,
    Poisoned,
    ReadOnly,
    Unsupported,
)

# Read by type checkers; at run time these are imported when they are used, since `typing` and `re` take longer than all else.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from bolide._sql import sql
    from bolide._types import Condition, Key, Record

__all__ = [
    "Advice",
    "Answer",
    "Answers",
    "ArrowTable",
    "Attribute",
    "Batch",
    "BuildProgress",
    "BulkProgress",
    "CheckReport",
    "Closed",
    "Collection",
    "Condition",
    "Conflict",
    "Corruption",
    "DELETE",
    "Db",
    "Delete",
    "Error",
    "Estimate",
    "Expired",
    "Explain",
    "Filter",
    "ForkError",
    "Index",
    "IndexBuild",
    "InternalError",
    "Interrupted",
    "InvalidInput",
    "IoError",
    "Key",
    "LimitExceeded",
    "Locked",
    "NoSpace",
    "NotFound",
    "Poisoned",
    "PreparedQuery",
    "ReadOnly",
    "Record",
    "Records",
    "Savepoint",
    "Snapshot",
    "Summary",
    "Transaction",
    "Unsupported",
    "__version__",
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
    "sql",
    "where",
    "within",
]

_MODULES = {"sql": "bolide._sql", "Condition": "bolide._types", "Key": "bolide._types", "Record": "bolide._types"}


def __getattr__(name: str) -> object:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(module), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


# Handles of the parent are invalid in a child process: its threads do not exist there.
if hasattr(_os, "register_at_fork"):
    _os.register_at_fork(after_in_child=_note_fork)
