"""The examples in the docstrings and in the README."""

import doctest
from pathlib import Path

import bolide
import bolide._bolide
import bolide._sql
import bolide.aio
from conftest import run_doctests


def test_the_examples_of_the_docstrings_run() -> None:
    count, failures = run_doctests(bolide)
    native, native_failures = 0, []
    for name in dir(bolide._bolide):
        member = getattr(bolide._bolide, name)
        if not isinstance(member, type) and callable(member):
            member.__doc__ and run_one(name, member.__doc__, native_failures)
            native += 1
    assert failures + native_failures == [], "".join(failures + native_failures)
    assert count >= 25, count


def run_one(name: str, text: str, failures: list[str]) -> None:
    from conftest import make_orders

    with bolide.open(":memory:") as db:
        names = {"bolide": bolide, "db": db, "orders": make_orders(db)}
        test = doctest.DocTestParser().get_doctest(text, names, name, None, 0)
        doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=failures.append)


def test_the_example_of_sql_runs() -> None:
    failures: list[str] = []
    assert bolide._sql.sql.__doc__ is not None
    run_one("sql", bolide._sql.sql.__doc__, failures)
    assert failures == []


def test_the_examples_of_the_readme_run(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    readme = Path(__file__).parent.parent / "README.md"
    blocks = readme.read_text().split("```python\n")[1:]
    assert blocks
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block.split("```")[0], str(readme), "exec"), names)
