"""SQL over the collections of a database, through DuckDB."""

from __future__ import annotations

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
    known = set(db.collections)
    for name in duckdb.get_table_names(statement) if hasattr(duckdb, "get_table_names") else known:
        if name in known:
            declared = (columns or {}).get(name)
            connection.register(name, db.collection(name).arrow(columns=None if declared is None else dict(declared)))
    return connection.sql(statement, params=parameters)
