"""The API with await."""

import asyncio
import subprocess
import sys
import threading

import pyarrow as pa
import pytest

import bolide
import bolide.aio
from conftest import RECORDS, run_doctests


def test_the_examples_of_the_module_run() -> None:
    count, failures = run_doctests(bolide.aio)
    assert (count, failures) == (1, [])


def test_everything(path) -> None:
    async def main() -> None:
        async with await bolide.aio.open(path) as db:
            orders = await db.create_collection("orders", indexes=["state"])
            assert await orders.put_many(RECORDS.items()) == 3
            await orders.put("o4", {"state": "new"}, sync="always")
            assert await orders.get("o4") == {"state": "new"} and await orders.contains("o4")
            assert await orders.multi_get(["o4", "x"]) == [{"state": "new"}, None]
            await orders.delete("o4")
            assert (orders.name, db.collections) == ("orders", ["orders"])
            assert [key async for key in orders] == [key async for key in orders.keys()] == ["o1", "o2", "o3"]
            assert dict(await orders.items().all()) == RECORDS
            assert len(await orders.values().all()) == 3
            page = orders.find(state="open", limit=1)
            assert [answer.key for answer in await page.all()] == ["o3"]
            token = await page.next_token()
            assert [answer.key async for answer in orders.find(state="open", limit=5, after=token)] == ["o1"]
            assert (await page.explain()).index == "state"
            assert await orders.count("total > 10") == 2 and (await orders.summarize("total")).sum == 42.5
            assert await orders.distinct("state") == [("done", 1), ("open", 2)]
            assert (await orders.create_index("customer")).name == "customer"
            assert (await orders.rebuild_index("customer")).state == "ready"
            await orders.drop_index("customer")
            assert (await orders.advise("customer")).spec
            assert [index.name for index in orders.indexes] == ["state"]
            assert pa.table(await orders.arrow(columns={"total": "float64"})).num_rows == 3
            assert await orders.import_arrow(pa.table({"id": ["p"]}), key="id") == 1
            assert (await orders.update_where(lambda key, record: {**record, "n": 1}, state="open")).changed == 2
            assert (await orders.delete_where(state="done")).changed == 1
            await orders.compact()
            await orders.set_layout("tiered")
            assert await orders.check_indexes() and orders.index("state").state == "ready"
            assert (await orders.smallest("total"), await orders.largest("total", state="open")) == (12.5, 20)
            assert (await orders.estimate(state="open")).records == 2
            async with await orders.prepare("state", limit=1) as by_state:
                assert [answer.key for answer in await by_state.find("open")] == ["o3"]
            async with db.begin() as tx:
                tx.put(orders, "q", {"state": "q"})
                assert await tx.get(orders, "q") == {"state": "q"}
                assert await tx.get_for_update(orders, "q", raw=True) == b'{"state":"q"}'
                assert await tx.count(orders, state="q") == 1
                before = tx.savepoint()
                tx.delete_range(orders, prefix="q")
                assert await tx.items(orders, prefix="q").all() == []
                tx.rollback_to(before)
                assert [key async for key, _ in tx.items(orders, prefix="q")] == ["q"]
                assert [answer.key async for answer in tx.find(orders, state="q")] == ["q"]
                tx.delete(orders, "p")
            assert not await orders.contains("p")
            with pytest.raises(ZeroDivisionError):
                async with db.begin() as tx:
                    tx.put(orders, "r", {})
                    1 / 0
            assert not await orders.contains("r")
            with pytest.raises(bolide.Closed):
                db.begin().sync
            assert await db.transaction(lambda tx: tx.count(orders.sync)) == 3
            batch = db.batch()
            batch.put(orders.sync, "s", {})
            await db.commit(batch)
            with db.snapshot() as snap:
                await orders.delete_range()
                assert await orders.get("s", at=snap) == {}
            await db.sync_writes(), await db.flush(), await db.compact(), await db.wait_until_settled()
            assert (await db.stats())["collections"][0]["name"] == "orders"
            assert await bolide.aio.has_writer(path)
            assert await db.check(deep=True)
            await db.checkpoint(path.parent / "copy")
            assert db["orders"].name == "orders"
            await db.drop_collection("orders")
        assert not await bolide.aio.has_writer(path)
        assert await bolide.aio.repair(path.parent / "copy", path.parent / "repaired")
        async with await bolide.aio.open(path.parent / "repaired") as db:
            assert db.collections == ["orders"]

    asyncio.run(main())


def test_many_at_once(path) -> None:
    async def main() -> None:
        async with await bolide.aio.open(path) as db:
            c = await db.create_collection("c", indexes=["g"])
            await asyncio.gather(*(c.put(n, {"g": n % 3}) for n in range(500)))
            counts = await asyncio.gather(*(c.count(g=g) for g in range(3)))
            assert sum(counts) == 500
            async with c.items() as items:
                async for _ in items:
                    break

    asyncio.run(main())


def test_tasks_that_share_an_iteration_lose_nothing(path) -> None:
    async def main() -> None:
        async with await bolide.aio.open(path) as db:
            c = await db.create_collection("c", indexes=["g"])
            await c.put_many((n, {"g": 1}) for n in range(5_000))
            for iteration in (c.keys(), c.find(g=1)):
                found: list = []

                async def consume() -> None:
                    async for element in iteration:
                        found.append(element if isinstance(element, int) else element.key)

                await asyncio.gather(*(consume() for _ in range(5)))
                assert sorted(found) == list(range(5_000))

    asyncio.run(main())


def test_a_cancelled_call_loses_no_element() -> None:
    async def main() -> None:
        may_go_on = threading.Event()
        starts = 0

        def start():
            nonlocal starts
            starts += 1

            def elements():
                for number in range(1_000):
                    if number % 100 == 0:
                        assert may_go_on.wait(timeout=60)
                    yield number

            return elements()

        iteration = bolide.aio.Iteration(start)
        found: list = []
        cancelled = 0
        while True:
            may_go_on.clear()
            task = asyncio.ensure_future(iteration.__anext__())
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            task.cancel()
            try:
                found.append(await task)
            except asyncio.CancelledError:
                cancelled += 1
                may_go_on.set()
                found.append(await iteration.__anext__())
            except StopAsyncIteration:
                break
        assert found == list(range(1_000)) and cancelled == 4 and starts == 1
        await iteration.close()

    asyncio.run(main())


def test_an_error_is_raised_once_and_after_it_the_iteration_can_be_closed(path) -> None:
    async def main() -> None:
        async with await bolide.aio.open(path) as db:
            c = await db.create_collection("c")
            answers = c.find("no filter")
            for call in (answers.__anext__, answers.explain, answers.next_token):
                with pytest.raises(bolide.InvalidInput):
                    await call()
            await answers.close()
            assert await answers.all() == []

    asyncio.run(main())


def test_the_threads_are_made_anew_after_a_fork(path) -> None:
    program = f"""
import asyncio, os, sys, warnings
warnings.simplefilter("ignore")
import bolide.aio
async def main(path):
    async with await bolide.aio.open(path) as db:
        c = await db.create_collection("c", exist_ok=True)
        await asyncio.gather(*(c.put(n, {{}}) for n in range(100)))
        return await c.count()
assert asyncio.run(main({str(path)!r})) == 100
child = os.fork()
if child == 0:
    import signal
    signal.alarm(40)
    os._exit(0 if asyncio.run(main({str(path)!r} + "-of-child")) == 100 else 1)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
assert asyncio.run(main({str(path)!r})) == 100
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
