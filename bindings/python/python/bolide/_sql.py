"""SQL over the collections of a database, through DuckDB."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Mapping

if TYPE_CHECKING:
    from bolide._bolide import Db


def sql(
    db: Db,
    statement: str,
    parameters: object = None,
    *,
    columns: Mapping[str, Mapping[str, str]] | None = None,
    connection: Any = None,
) -> Any:
    """Runs ``statement`` in DuckDB, with each collection that it names as a table. Returns a relation of DuckDB.

    ``columns`` maps names of collections to columns as :meth:`Collection.arrow` takes them; other columns are inferred from a
    sample. A statement reads its collections whole: for a selective filter, pass ``collection.arrow(filter)`` to DuckDB.
    Needs the package ``duckdb``.

    >>> bolide.sql(db, "select state, count(*) from orders group by state order by state").fetchall()
    [('done', 1), ('open', 2)]
    """
    try:
        import duckdb
    except ImportError as error:
        raise ImportError("bolide.sql needs the package duckdb: pip install duckdb") from error
    connection = duckdb.connect() if connection is None else connection
    for name in db.collections:
        # A collection whose name the statement has for something else costs a sample, and is not read.
        if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", statement, re.IGNORECASE):
            declared = (columns or {}).get(name)
            connection.register(name, db.collection(name).arrow(columns=None if declared is None else dict(declared)))
    return connection.sql(statement, params=parameters)
