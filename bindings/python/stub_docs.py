"""The docstrings of the stub `_bolide.pyi`: those of the module, which the Rust sources contain.

Editors show the docstrings of a stub, since they cannot read those of a native module. So the stub repeats them; this script
writes them, and a test compares them. After a change of a docstring: bindings/python/develop, then

    bindings/python/.venv/bin/python bindings/python/stub_docs.py --write
"""

import ast
import inspect
import sys
from pathlib import Path
from types import ModuleType

STUB = Path(__file__).parent / "python" / "bolide" / "_bolide.pyi"

Definition = ast.ClassDef | ast.FunctionDef


def definitions(stub: ast.Module) -> list[tuple[str, Definition]]:
    """Classes, methods and functions with their dotted names; of overloads the first."""
    found: list[tuple[str, Definition]] = []
    names: set[str] = set()

    def add(nodes: list[ast.stmt], prefix: str) -> None:
        for node in nodes:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and prefix + node.name not in names:
                names.add(prefix + node.name)
                found.append((prefix + node.name, node))
                if isinstance(node, ast.ClassDef):
                    add(node.body, f"{node.name}.")

    add(stub.body, "")
    return found


def documentation(module: ModuleType, name: str) -> str | None:
    """The docstring of an object of the module; None for one that is inherited, or made by the interpreter."""
    owner: object = module
    *owners, last = name.split(".")
    for part in owners:
        owner = getattr(owner, part)
    own = getattr(owner, last) if owner is module else vars(owner).get(last)
    if own is None or (last.startswith("__") and owner is not module):
        return None
    text = getattr(own, "__doc__", None)
    return inspect.cleandoc(text) if text else None


def literal(text: str, indent: str) -> list[str]:
    """The lines of a docstring."""
    prefix = 'r"""' if "\\" in text else '"""'
    lines = (prefix + text + ("\n" if "\n" in text else "") + '"""').split("\n")
    return [indent + line if line else "" for line in lines]


def with_docs(stub: str, module: ModuleType) -> str:
    """The stub with the docstrings of the module in place of its own."""
    lines = stub.split("\n")
    # From the end, so that the lines of the others stay.
    for name, node in sorted(definitions(ast.parse(stub)), key=lambda pair: -pair[1].lineno):
        text = documentation(module, name)
        body = node.body
        has_doc = ast.get_docstring(node) is not None
        indent = " " * (node.col_offset + 4)
        doc = literal(text, indent) if text else []
        if has_doc:
            first = body[0]
            assert first.end_lineno is not None
            # A function has nothing but its docstring.
            rest = [] if doc or len(body) > 1 else [indent + "..."]
            lines[first.lineno - 1 : first.end_lineno] = doc + rest
        elif doc and isinstance(node, ast.ClassDef) and body[0].lineno > node.lineno:
            start = body[0].decorator_list[0].lineno if getattr(body[0], "decorator_list", None) else body[0].lineno
            lines[start - 1 : start - 1] = doc
        elif doc:
            end = body[0].end_lineno
            assert end is not None and lines[end - 1].rstrip().endswith("..."), lines[end - 1]
            lines[end - 1] = lines[end - 1].rstrip().removesuffix("...").rstrip()
            lines[end:end] = doc
    return "\n".join(lines)


def main() -> None:
    import bolide._bolide

    stub = STUB.read_text()
    documented = with_docs(stub, bolide._bolide)
    if sys.argv[1:] == ["--write"]:
        STUB.write_text(documented)
    elif documented != stub:
        sys.exit(f"the docstrings of {STUB.name} differ from those of the module: run {Path(__file__).name} --write")


if __name__ == "__main__":
    main()
