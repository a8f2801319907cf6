"""The API with await."""

import asyncio

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
            async with db.begin() as tx:
                tx.put(orders, "q", {"state": "q"})
                assert await tx.get(orders, "q") == {"state": "q"}
                assert await tx.get_for_update(orders, "q", raw=True) == b'{"state":"q"}'
                assert await tx.count(orders, state="q") == 1
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
            await db.flush()
            assert await db.check(deep=True)
            await db.checkpoint(path.parent / "copy")
            assert db["orders"].name == "orders"
            await db.drop_collection("orders")

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
