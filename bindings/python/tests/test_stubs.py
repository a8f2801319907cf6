"""The stub has the docstrings of the module, and `bolide.aio` the methods of the classes."""

import inspect
import subprocess
import sys
from pathlib import Path

import bolide
import bolide.aio

FOLDER = Path(__file__).parent.parent


def test_the_docstrings_of_the_stub_are_those_of_the_module() -> None:
    done = subprocess.run([sys.executable, FOLDER / "stub_docs.py"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_a_changed_docstring_is_found() -> None:
    sys.path.insert(0, str(FOLDER))
    try:
        import stub_docs
    finally:
        sys.path.remove(str(FOLDER))
    stub = stub_docs.STUB.read_text()
    for old, new in (("Whether it is closed.", "Whether it is open."), ('        """Sizes and counters', '        """')):
        assert stub.count(old) == 1
        assert stub_docs.with_docs(stub.replace(old, new), bolide._bolide) != stub.replace(old, new)


# Methods with another form: iterators and dict-like access.
NOT_ASYNC = {"Collection": {"clear"}, "Db": {"path", "read_only", "closed", "sync"}, "Transaction": {"sequence", "memory_bytes"}}


def test_the_api_with_await_is_complete() -> None:
    for name, without in NOT_ASYNC.items():
        plain, asynchronous = getattr(bolide, name), getattr(bolide.aio, name)
        missing = {method for method in dir(plain) if not method.startswith("_")} - set(dir(asynchronous)) - without
        assert not missing, (name, missing)
        for method in dir(asynchronous):
            own = vars(asynchronous).get(method)
            if not method.startswith("_") and callable(own):
                assert inspect.getdoc(own), f"{name}.{method}"
