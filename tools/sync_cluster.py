"""Writes the parts of kwire/cluster.py that repeat kwire/aio.py: signatures, docstrings, and calls
that wait.

Between the lines "# generated from …" and "# end of what is generated" of a class stands each
public method and property of the class of the same name in kwire/aio.py, but for those that the
class has by hand and those in ASYNC_ONLY. Run from the project's root after a change of either
file; tests/cluster/test_sync.py fails when it was forgotten.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ASYNC, SYNC = ROOT / "kwire" / "aio.py", ROOT / "kwire" / "cluster.py"
PARTS = {
    "Contents": ROOT / "kwire" / "backends" / "contents.py",
    "Snapshots": ROOT / "kwire" / "backends" / "snapshots" / "verbs.py",
}
"""Classes that a class of kwire/aio.py inherits methods from, which are its own here."""
BEGIN = "    # --- generated from kwire/aio.py by tools/sync_cluster.py"
END = "    # --- end of what is generated"

ASYNC_ONLY = {"of", "inside", "node"}
"""What is on the event loop's side alone: a supervisor that runs there, and what nodes are started
by."""
BODIES = {
    ("Cluster", "__init__"): "self._wrap(aio.Cluster({arguments}))",
    ("Cluster", "start"): "self._begin()",
    ("Cluster", "stop"): "self._end()",
}
"""Where more is to be done than to wait for the call: a method that the class has by hand does
it."""
WRAPPED = ("Broker", "Controller")
"""Classes whose values become those of the same name here."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def text() -> str:
    """kwire/cluster.py as it should be."""
    parts, source = SYNC.read_text(), ASYNC.read_text()
    classes = {node.name: node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}
    lines = parts.splitlines()
    written: list[str] = []
    generating = False
    for number, line in enumerate(lines):
        if line == END:
            generating = False
        if not generating:
            written.append(line)
        if line == BEGIN:
            generating = True
            name = _class_at(lines, number)
            by_hand = set(_by_hand(parts, name))
            for text_of, part in ((source, classes[name]), *_parts(classes[name])):
                for function in _public(part):
                    if function.name not in by_hand | ASYNC_ONLY:
                        written += ["", *_synchronous(text_of, name, function)]
            written.append("")
    return _formatted("\n".join(written) + "\n")


def _parts(of: ast.ClassDef) -> Iterator[tuple[str, ast.ClassDef]]:
    """The classes in PARTS that a class inherits from, each with its module's source."""
    for base in map(ast.unparse, of.bases):
        if base in PARTS:
            source = PARTS[base].read_text()
            for node in ast.parse(source).body:
                if isinstance(node, ast.ClassDef) and node.name == base:
                    yield source, node


def _class_at(lines: list[str], number: int) -> str:
    """The class in which a line stands."""
    return next(
        line.removeprefix("class ").partition("(")[0].rstrip(":")
        for line in reversed(lines[:number])
        if line.startswith("class ")
    )


def _by_hand(parts: str, name: str) -> Iterator[str]:
    """The functions of a class that do not stand between the marks."""
    lines = parts.splitlines()
    for node in ast.parse(parts).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            inside = range(lines.index(BEGIN, node.lineno), lines.index(END, node.lineno))
            for function in node.body:
                if isinstance(function, Function) and function.lineno not in inside:
                    yield function.name


def _public(of: ast.ClassDef) -> Iterator[Function]:
    for node in of.body:
        if isinstance(node, Function) and (node.name == "__init__" or node.name[0] != "_"):
            yield node


def _synchronous(source: str, name: str, function: Function) -> Iterator[str]:
    """The lines of a function: decorators, signature and docstring as they are, and a body that
    waits."""
    lines = source.splitlines()
    first = min([function.lineno, *(each.lineno for each in function.decorator_list)])
    (docstring, *_), last = function.body, function.body[0].end_lineno
    assert isinstance(docstring, ast.Expr) and docstring.end_lineno, f"{function.name}: docstring"
    for line in lines[first - 1 : last]:
        yield line.replace("    async def ", "    def ", 1)
    yield "        " + _body(name, function)


def _body(name: str, function: Function) -> str:
    arguments = [each.arg for each in function.args.args[1:]]
    arguments += [f"{each.arg}={each.arg}" for each in function.args.kwonlyargs]
    called = ", ".join(arguments)
    if (name, function.name) in BODIES:
        return BODIES[name, function.name].format(arguments=called)
    value = f"self._inner.{function.name}"
    if not function.decorator_list:  # else a property
        value += f"({called})"
    if isinstance(function, ast.AsyncFunctionDef):
        value = f"self._run({value})"
    returned = ast.unparse(function.returns) if function.returns else ""
    for wrapped in WRAPPED:
        if returned == wrapped:
            value = f"{wrapped}(self, {value})"
        elif returned == f"list[{wrapped}]":
            value = f"[{wrapped}(self, each) for each in {value}]"
    return value if returned == "None" else f"return {value}"


def _formatted(source: str) -> str:
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(SYNC), "-"]
    return subprocess.run(command, input=source, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    SYNC.write_text(text())
