"""The same API with ``await``, on a pool of threads.

>>> import asyncio
>>> import bolide.aio
>>> async def main():
...     async with await bolide.aio.open(":memory:") as db:
...         orders = await db.create_collection("orders", indexes=["state"])
...         await orders.put("o1", {"state": "open"})
...         return [answer.key async for answer in orders.find(state="open")]
>>> asyncio.run(main())
['o1']

Methods that read or write return awaitables; iterators are asynchronous. Properties that read no file are plain. Filters are
those of :mod:`bolide`. A cancelled call still runs to its end in its thread.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from itertools import islice
from types import TracebackType
from typing import Any, AsyncIterator, Callable, Generic, Iterable, TypeVar

import bolide

__all__ = ["Collection", "Db", "Iteration", "PreparedQuery", "Transaction", "has_writer", "open", "repair"]

T = TypeVar("T")

#: Elements that an iteration takes from its iterator at once.
_CHUNK = 256


class _Pool:
    """The threads of all calls, from the first call on."""

    def __init__(self) -> None:
        self._making = threading.Lock()
        self._threads: ThreadPoolExecutor | None = None

    def threads(self) -> ThreadPoolExecutor:
        with self._making:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(max_workers=16, thread_name_prefix="bolide-aio")
            return self._threads

    def forget(self) -> None:
        """Called in the child after a fork, where the threads do not exist."""
        self._making = threading.Lock()
        self._threads = None


_POOL = _Pool()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_POOL.forget)


async def _run(function: Callable[..., T], *arguments: Any, **settings: Any) -> T:
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_POOL.threads(), partial(function, *arguments, **settings))


class Iteration(Generic[T]):
    """An asynchronous iterator over answers or records. It holds a snapshot until it is read to its end or closed.

    Several tasks may share it: each element is returned once. After a cancelled call the next one returns its element.
    """

    def __init__(self, start: Callable[[], Any]) -> None:
        self._start = start
        self._iterator: Any = None
        self._taken: deque[T] = deque()
        self._has_ended = False
        # One task uses the iterator at a time.
        self._turn = asyncio.Lock()
        # The call in a thread, which ends after the task that began it was cancelled.
        self._running: Future[Any] | None = None

    def _open(self) -> Any:
        if self._iterator is None:
            self._iterator = self._start()
        return self._iterator

    def _fill(self) -> None:
        count = 0
        for element in islice(self._open(), _CHUNK):
            self._taken.append(element)
            count += 1
        self._has_ended = count < _CHUNK

    def _end(self, running: Future[Any] | None) -> None:
        # It was submitted before, so that it has a thread.
        wait([running] if running is not None else [])
        self._taken.clear()
        self._has_ended = True
        if self._iterator is not None:
            self._iterator.close()

    async def _finished(self) -> Any:
        """The result of the running call. If this is cancelled, the call goes on and stays the running one."""
        if self._running is None:
            return None
        try:
            result = await asyncio.shield(asyncio.wrap_future(self._running))
        except asyncio.CancelledError:
            raise
        except BaseException:
            self._running = None
            raise
        self._running = None
        return result

    async def _call(self, function: Callable[[], Any]) -> Any:
        await self._finished()
        self._running = _POOL.threads().submit(function)
        return await self._finished()

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        async with self._turn:
            await self._finished()
            if not self._taken and not self._has_ended:
                await self._call(self._fill)
            if self._taken:
                return self._taken.popleft()
        raise StopAsyncIteration

    async def all(self) -> list[T]:
        """All elements that were not read yet."""
        return [element async for element in self]

    async def explain(self) -> bolide.Explain:
        """The report of the execution of a query."""
        async with self._turn:
            explain: bolide.Explain = await self._call(lambda: self._open().explain)
            return explain

    async def next_token(self) -> str | None:
        """The token for the answers after these; see :attr:`bolide.Answers.next_token`."""
        async with self._turn:
            token: str | None = await self._call(lambda: self._open().next_token)
            return token

    async def close(self) -> None:
        """Ends the iteration and releases its snapshot."""
        async with self._turn:
            # Also closes it if this is cancelled.
            self._running = _POOL.threads().submit(self._end, self._running)
            await self._finished()

    async def __aenter__(self) -> Iteration[T]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


class Collection:
    """A collection; see :class:`bolide.Collection`."""

    def __init__(self, collection: bolide.Collection) -> None:
        #: The collection without ``await``.
        self.sync = collection

    @property
    def name(self) -> str:
        """The name."""
        return self.sync.name

    @property
    def indexes(self) -> list[bolide.Index]:
        """The indexes."""
        return self.sync.indexes

    async def put(self, key: bolide.Key, record: bolide.Record, *, sync: str | None = None) -> None:
        """See :meth:`bolide.Collection.put`."""
        await _run(self.sync.put, key, record, sync=sync)

    async def put_many(self, pairs: Iterable[tuple[bolide.Key, bolide.Record]], *, sync: str | None = None) -> int:
        """See :meth:`bolide.Collection.put_many`."""
        return await _run(self.sync.put_many, pairs, sync=sync)

    async def get(
        self, key: bolide.Key, default: Any = None, *, raw: bool = False, at: bolide.Snapshot | None = None
    ) -> Any:
        """See :meth:`bolide.Collection.get`."""
        return await _run(self.sync.get, key, default, raw=raw, at=at)

    async def multi_get(self, keys: Iterable[bolide.Key], *, raw: bool = False) -> list[Any]:
        """See :meth:`bolide.Collection.multi_get`."""
        return await _run(self.sync.multi_get, keys, raw=raw)

    async def contains(self, key: bolide.Key) -> bool:
        """Whether there is a record under ``key``."""
        return await _run(self.sync.__contains__, key)

    async def delete(self, key: bolide.Key, *, sync: str | None = None) -> None:
        """See :meth:`bolide.Collection.delete`."""
        await _run(self.sync.delete, key, sync=sync)

    async def delete_range(
        self, start: bolide.Key | None = None, end: bolide.Key | None = None, *, prefix: bolide.Key | None = None
    ) -> None:
        """See :meth:`bolide.Collection.delete_range`."""
        await _run(self.sync.delete_range, start, end, prefix=prefix)

    async def delete_where(self, filter: bolide.Condition = None, /, **settings: Any) -> bolide.BulkProgress:
        """See :meth:`bolide.Collection.delete_where`."""
        return await _run(self.sync.delete_where, filter, **settings)

    async def update_where(
        self, function: Callable[[Any, Any], Any], filter: bolide.Condition = None, /, **settings: Any
    ) -> bolide.BulkProgress:
        """See :meth:`bolide.Collection.update_where`; ``function`` runs in a thread of the pool."""
        return await _run(self.sync.update_where, function, filter, **settings)

    def find(self, filter: bolide.Condition = None, /, **settings: Any) -> Iteration[bolide.Answer]:
        """See :meth:`bolide.Collection.find`."""
        return Iteration(partial(self.sync.find, filter, **settings))

    async def prepare(
        self, path: str, filter: bolide.Condition = None, /, **settings: Any
    ) -> PreparedQuery:
        """See :meth:`bolide.Collection.prepare`."""
        return PreparedQuery(await _run(self.sync.prepare, path, filter, **settings))

    async def count(self, filter: bolide.Condition = None, /, **settings: Any) -> int:
        """See :meth:`bolide.Collection.count`."""
        return await _run(self.sync.count, filter, **settings)

    async def estimate(self, filter: bolide.Condition = None, /, **equal: Any) -> bolide.Estimate:
        """See :meth:`bolide.Collection.estimate`."""
        return await _run(self.sync.estimate, filter, **equal)

    async def smallest(self, path: str, filter: bolide.Condition = None, /, **equal: Any) -> Any:
        """See :meth:`bolide.Collection.smallest`."""
        return await _run(self.sync.smallest, path, filter, **equal)

    async def largest(self, path: str, filter: bolide.Condition = None, /, **equal: Any) -> Any:
        """See :meth:`bolide.Collection.largest`."""
        return await _run(self.sync.largest, path, filter, **equal)

    async def summarize(self, path: str, filter: bolide.Condition = None, /, **equal: Any) -> bolide.Summary:
        """See :meth:`bolide.Collection.summarize`."""
        return await _run(self.sync.summarize, path, filter, **equal)

    async def distinct(self, path: str, filter: bolide.Condition = None, /, **settings: Any) -> list[tuple[Any, int]]:
        """See :meth:`bolide.Collection.distinct`."""
        return await _run(self.sync.distinct, path, filter, **settings)

    def items(self, **settings: Any) -> Iteration[tuple[Any, Any]]:
        """See :meth:`bolide.Collection.items`."""
        return Iteration(partial(self.sync.items, **settings))

    def keys(self, **settings: Any) -> Iteration[Any]:
        """See :meth:`bolide.Collection.keys`."""
        return Iteration(partial(self.sync.keys, **settings))

    def values(self, **settings: Any) -> Iteration[Any]:
        """See :meth:`bolide.Collection.values`."""
        return Iteration(partial(self.sync.values, **settings))

    def __aiter__(self) -> AsyncIterator[Any]:
        return self.keys()

    def index(self, name: str) -> bolide.Index:
        """See :meth:`bolide.Collection.index`."""
        return self.sync.index(name)

    async def create_index(self, spec: str, **settings: Any) -> bolide.Index:
        """See :meth:`bolide.Collection.create_index`; waits until queries can use the index."""
        return await _run(self.sync.create_index, spec, **settings)

    async def rebuild_index(self, name: str, **settings: Any) -> bolide.Index:
        """See :meth:`bolide.Collection.rebuild_index`."""
        return await _run(self.sync.rebuild_index, name, **settings)

    async def drop_index(self, name: str) -> None:
        """See :meth:`bolide.Collection.drop_index`."""
        await _run(self.sync.drop_index, name)

    async def advise(self, path: str, **workload: Any) -> bolide.Advice:
        """See :meth:`bolide.Collection.advise`."""
        return await _run(self.sync.advise, path, **workload)

    async def check_indexes(self) -> bolide.CheckReport:
        """See :meth:`bolide.Collection.check_indexes`."""
        return await _run(self.sync.check_indexes)

    async def set_layout(self, layout: str) -> None:
        """See :meth:`bolide.Collection.set_layout`."""
        await _run(self.sync.set_layout, layout)

    async def compact(self) -> None:
        """See :meth:`bolide.Collection.compact`."""
        await _run(self.sync.compact)

    async def arrow(self, filter: bolide.Condition = None, /, **settings: Any) -> bolide.ArrowTable:
        """See :meth:`bolide.Collection.arrow`. Reading the stream is not asynchronous."""
        return await _run(self.sync.arrow, filter, **settings)

    async def import_arrow(self, data: Any, *, key: str, sync: str | None = None) -> int:
        """See :meth:`bolide.Collection.import_arrow`."""
        return await _run(self.sync.import_arrow, data, key=key, sync=sync)


class PreparedQuery:
    """A prepared query; see :class:`bolide.PreparedQuery`. Several tasks may run it, one after the other."""

    def __init__(self, prepared: bolide.PreparedQuery) -> None:
        #: The prepared query without ``await``.
        self.sync = prepared

    async def find(self, value: Any, *, at: bolide.Snapshot | None = None) -> list[bolide.Answer]:
        """See :meth:`bolide.PreparedQuery.find`."""
        return await _run(self.sync.find, value, at=at)

    async def close(self) -> None:
        """See :meth:`bolide.PreparedQuery.close`."""
        await _run(self.sync.close)

    async def __aenter__(self) -> PreparedQuery:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


class Transaction:
    """A transaction; see :class:`bolide.Transaction`. Its writes are in memory, so they need no ``await``."""

    def __init__(self, start: Callable[[], bolide.Transaction]) -> None:
        self._start = start
        self._transaction: bolide.Transaction | None = None

    @property
    def sync(self) -> bolide.Transaction:
        """The transaction without ``await``."""
        if self._transaction is None:
            raise bolide.Closed("the transaction has not begun: use `async with`")
        return self._transaction

    async def get(self, collection: Collection, key: bolide.Key, *, raw: bool = False) -> Any:
        """See :meth:`bolide.Transaction.get`."""
        return await _run(self.sync.get, collection.sync, key, raw=raw)

    async def get_for_update(self, collection: Collection, key: bolide.Key, *, raw: bool = False) -> Any:
        """See :meth:`bolide.Transaction.get_for_update`."""
        return await _run(self.sync.get_for_update, collection.sync, key, raw=raw)

    def put(self, collection: Collection, key: bolide.Key, record: bolide.Record) -> None:
        """See :meth:`bolide.Transaction.put`."""
        self.sync.put(collection.sync, key, record)

    def delete(self, collection: Collection, key: bolide.Key) -> None:
        """See :meth:`bolide.Transaction.delete`."""
        self.sync.delete(collection.sync, key)

    def delete_range(
        self,
        collection: Collection,
        start: bolide.Key | None = None,
        end: bolide.Key | None = None,
        *,
        prefix: bolide.Key | None = None,
    ) -> None:
        """See :meth:`bolide.Transaction.delete_range`."""
        self.sync.delete_range(collection.sync, start, end, prefix=prefix)

    def savepoint(self) -> bolide.Savepoint:
        """See :meth:`bolide.Transaction.savepoint`."""
        return self.sync.savepoint()

    def rollback_to(self, savepoint: bolide.Savepoint) -> None:
        """See :meth:`bolide.Transaction.rollback_to`."""
        self.sync.rollback_to(savepoint)

    def items(self, collection: Collection, **settings: Any) -> Iteration[tuple[Any, Any]]:
        """See :meth:`bolide.Transaction.items`."""
        return Iteration(partial(self.sync.items, collection.sync, **settings))

    def find(
        self, collection: Collection, filter: bolide.Condition = None, /, **settings: Any
    ) -> Iteration[bolide.Answer]:
        """See :meth:`bolide.Transaction.find`."""
        return Iteration(partial(self.sync.find, collection.sync, filter, **settings))

    async def count(self, collection: Collection, filter: bolide.Condition = None, /, **equal: Any) -> int:
        """See :meth:`bolide.Transaction.count`."""
        return await _run(self.sync.count, collection.sync, filter, **equal)

    async def commit(self) -> int:
        """See :meth:`bolide.Transaction.commit`."""
        return await _run(self.sync.commit)

    async def rollback(self) -> None:
        """See :meth:`bolide.Transaction.rollback`."""
        await _run(self.sync.rollback)

    async def __aenter__(self) -> Transaction:
        self._transaction = await _run(self._start)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await _run(self.sync.__exit__, kind, value, traceback)


class Db:
    """A database; see :class:`bolide.Db`. ``async with`` closes it at the end."""

    def __init__(self, db: bolide.Db) -> None:
        #: The database without ``await``.
        self.sync = db

    @property
    def collections(self) -> list[str]:
        """The names of all collections, in order."""
        return self.sync.collections

    def collection(self, name: str) -> Collection:
        """The collection of this name."""
        return Collection(self.sync.collection(name))

    def __getitem__(self, name: str) -> Collection:
        return self.collection(name)

    async def create_collection(self, name: str, **settings: Any) -> Collection:
        """See :meth:`bolide.Db.create_collection`."""
        return Collection(await _run(self.sync.create_collection, name, **settings))

    async def drop_collection(self, name: str) -> None:
        """See :meth:`bolide.Db.drop_collection`."""
        await _run(self.sync.drop_collection, name)

    def batch(self, *, sync: str | None = None) -> bolide.Batch:
        """A batch; see :meth:`bolide.Db.batch`. Commit it with :meth:`commit`."""
        return self.sync.batch(sync=sync)

    async def commit(self, batch: bolide.Batch) -> int:
        """Commits a batch."""
        return await _run(batch.commit)

    def begin(self, **settings: Any) -> Transaction:
        """A transaction for ``async with``: committed at the end, discarded after an exception."""
        return Transaction(partial(self.sync.transaction, **settings))

    async def transaction(self, function: Callable[[bolide.Transaction], T], **settings: Any) -> T:
        """See :meth:`bolide.Db.transaction`; ``function`` runs in a thread of the pool."""
        return await _run(self.sync.transaction, function, **settings)

    def snapshot(self) -> bolide.Snapshot:
        """A snapshot of all collections as they are now."""
        return self.sync.snapshot()

    async def sync_writes(self) -> None:
        """See :meth:`bolide.Db.sync`; ``sync`` is the database without ``await``."""
        await _run(self.sync.sync)

    async def flush(self) -> None:
        """See :meth:`bolide.Db.flush`."""
        await _run(self.sync.flush)

    async def compact(self) -> None:
        """See :meth:`bolide.Db.compact`."""
        await _run(self.sync.compact)

    async def wait_until_settled(self) -> None:
        """See :meth:`bolide.Db.wait_until_settled`."""
        await _run(self.sync.wait_until_settled)

    async def stats(self) -> dict[str, Any]:
        """See :meth:`bolide.Db.stats`."""
        return await _run(self.sync.stats)

    async def check(self, *, deep: bool = False) -> bolide.CheckReport:
        """See :meth:`bolide.Db.check`."""
        return await _run(self.sync.check, deep=deep)

    async def checkpoint(self, path: Any) -> None:
        """See :meth:`bolide.Db.checkpoint`."""
        await _run(self.sync.checkpoint, path)

    async def close(self) -> None:
        """See :meth:`bolide.Db.close`."""
        await _run(self.sync.close)

    async def __aenter__(self) -> Db:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


async def open(path: Any, **settings: Any) -> Db:
    """See :func:`bolide.open`."""
    return Db(await _run(bolide.open, path, **settings))


async def has_writer(path: Any) -> bool:
    """See :func:`bolide.has_writer`."""
    return await _run(bolide.has_writer, path)


async def repair(source: Any, target: Any) -> str:
    """See :func:`bolide.repair`."""
    return await _run(bolide.repair, source, target)
