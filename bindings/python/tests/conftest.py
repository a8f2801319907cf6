"""Databases for the tests."""

import doctest
from pathlib import Path
from typing import Any, Iterator

import pytest

import bolide

RECORDS = {
    "o1": {"state": "open", "customer": "ada", "total": 12.5, "at": {"x": 0.5, "y": 51.0}},
    "o2": {"state": "done", "customer": "bob", "total": 10},
    "o3": {"state": "open", "customer": "bob", "total": 20},
}


def make_orders(db: bolide.Db) -> bolide.Collection:
    orders = db.create_collection("orders", indexes=["state", "total"])
    for key, record in RECORDS.items():
        orders.put(key, record)
    return orders


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "db"


@pytest.fixture
def db(path: Path) -> Iterator[bolide.Db]:
    with bolide.open(path) as db:
        yield db


@pytest.fixture
def orders(db: bolide.Db) -> bolide.Collection:
    return make_orders(db)


def run_doctests(module: Any) -> tuple[int, list[str]]:
    """Runs each docstring of ``module`` with a database of its own. Returns their number and the failures."""
    failures: list[str] = []
    count = 0
    for test in doctest.DocTestFinder(exclude_empty=True).find(module):
        if not test.examples:
            continue
        count += 1
        with bolide.open(":memory:") as db:
            test.globs.update({"bolide": bolide, "db": db, "orders": make_orders(db)})
            flags = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL
            doctest.DocTestRunner(optionflags=flags).run(test, out=failures.append, clear_globs=False)
    return count, failures
