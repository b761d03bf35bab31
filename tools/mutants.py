"""Break the rules of the core one at a time and see which test notices: `make mutants`.

The rules are data: tests/mutants/*.toml. An entry names a file, a text that occurs once in it, what is put in its
place, and the rule that this breaks. Each change is made in a copy of the tree; then the tests of the module run
(`near` in tests/mutants/tests.toml), and if none fails, all tests of the core (`wide`). A mutant that no test kills is
a hole in the tests, unless its entry argues why nothing can be seen (`argued`).

    python tools/mutants.py [WORD...] [--near] [--by sim --seeds 1-20] [--every 4] [--new] [--workers 2]
    python tools/mutants.py --page > docs/mutations.md

A WORD selects entries by id (T01, "T*") or by a part of the file's path. The exit status is 1 if too few are killed,
an argument does not hold, or an entry no longer fits the source. What was found is kept in build/mutants.json, with its
date; the page is made from that.
"""

from __future__ import annotations

import argparse
import ast
import concurrent.futures
import fcntl
import fnmatch
import json
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TABLE = Path("tests/mutants")
TESTS_FILE = "tests.toml"
RESULTS = Path("build/mutants.json")
WANTED_PERCENT = 97.0
_NOT_COPIED = shutil.ignore_patterns(
    ".*", "build", "dist", "__pycache__", "*.egg-info", "spark_it", "compat_tests", "bench"
)
_KEYS = {"id", "rule", "file", "old", "new", "tests", "argued"}


@dataclass(frozen=True)
class Mutant:
    """One rule broken. `tests`: run first, instead of those of its module."""

    id: str
    rule: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...] = ()
    argued: str = ""


@dataclass
class Outcome:
    """`killed_by`: the test or the seed; None: survived."""

    mutant: Mutant
    killed_by: str | None
    seconds: float


def read_table(root: Path) -> list[Mutant]:
    """Read every entry. ValueError for one that is malformed."""
    mutants = []
    for path in sorted((root / TABLE).glob("*.toml")):
        if path.name == TESTS_FILE:
            continue
        for entry in tomllib.loads(path.read_text()).get("mutant", []):
            if unknown := entry.keys() - _KEYS:
                raise ValueError(f"{path.name}: {entry.get('id')}: unknown {sorted(unknown)}")
            tests = tuple(entry.pop("tests", ()))
            mutants.append(Mutant(**entry, tests=tests))
    return mutants


def unfit(mutants: Iterable[Mutant], root: Path) -> list[str]:
    """Return what is wrong with entries: a text that does not occur once, two of one id …"""
    problems = []
    sources: dict[str, str] = {}
    seen: set[str] = set()
    for mutant in mutants:
        where = f"{mutant.id} ({mutant.file})"
        if mutant.id in seen:
            problems.append(f"{where}: the id is taken")
        seen.add(mutant.id)
        if mutant.file not in sources:
            path = root / mutant.file
            sources[mutant.file] = path.read_text() if path.is_file() else ""
        source = sources[mutant.file]
        count = source.count(mutant.old)
        if not source:
            problems.append(f"{where}: no such file")
        elif count != 1:
            problems.append(f"{where}: its text occurs {count} times: {mutant.old.strip()[:70]!r}")
        elif mutant.old == mutant.new:
            problems.append(f"{where}: it changes nothing")
        else:
            problems += [f"{where}: {error}" for error in syntax_errors(mutant, source)]
        problems += [
            f"{where}: no test {test}"
            for test in mutant.tests
            if not (root / test.partition("::")[0]).exists()
        ]
    return problems


_FUNCTION = re.compile(r"^(    )?(?:async )?def ", re.MULTILINE)
_NEXT = re.compile(r"^(?:    )?(?:(?:async )?def |class |@)", re.MULTILINE)


def syntax_errors(mutant: Mutant, source: str) -> list[str]:
    """Parse the function around the change; the whole file, which takes a hundred times as long, only if that fails."""
    start = source.index(mutant.old)
    end = start + len(mutant.old)
    before = [found for found in _FUNCTION.finditer(source, 0, end) if found.start() < start + 1]
    after = _NEXT.search(source, end)
    if before:
        begin = before[-1]
        text = (
            source[begin.start() : start]
            + mutant.new
            + source[end : after.start() if after else None]
        )
        try:
            ast.parse(f"if True:\n{text}" if begin[1] else text)
        except SyntaxError:
            pass
        else:
            return []
    try:
        ast.parse(mutated(mutant, source))
    except SyntaxError as error:
        return [str(error)]
    return []


def mutated(mutant: Mutant, source: str) -> str:
    return source.replace(mutant.old, mutant.new, 1)


def chosen(mutants: Iterable[Mutant], words: Sequence[str]) -> list[Mutant]:
    return [
        mutant
        for mutant in mutants
        if not words
        or any(fnmatch.fnmatchcase(mutant.id, word) or word in mutant.file for word in words)
    ]


class TestMap:
    """Which tests run for which module."""

    __test__ = False

    def __init__(self, root: Path) -> None:
        data = tomllib.loads((root / TABLE / TESTS_FILE).read_text())
        self._near: dict[str, list[str]] = data["near"]
        skipped = set(data.get("skipped", ()))
        files: set[str] = set()
        for name in data["wide"]:
            path = root / name
            found = [path] if path.is_file() else path.rglob("test_*.py")
            files |= {str(file.relative_to(root)) for file in found}
        self.wide = sorted(files - skipped)

    def near(self, mutant: Mutant) -> list[str]:
        """The tests of the entry, or those of the longest prefix of its file's path."""
        if mutant.tests:
            return list(mutant.tests)
        fits = [prefix for prefix in self._near if mutant.file.startswith(prefix)]
        return self._near[max(fits, key=len)] if fits else []


class Server:
    """A fork server (mutants_server.py) with a copy of the tree of its own."""

    def __init__(self, tree: Path) -> None:
        self._tree = tree
        environment = os.environ | {"PYTHONPATH": str(tree), "PYTHONHASHSEED": "0"}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("mutants_server.py"))],
            cwd=tree,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, task: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(task) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the fork server of {self._tree} ended")
        return json.loads(line)

    def log(self) -> str:
        """The output of the last task."""
        path = self._tree / "mutants.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


class Run:
    """Servers, the time that tests take as they are, and the loop over mutants."""

    def __init__(self, root: Path, folder: Path, workers: int) -> None:
        self._folder = folder
        self._workers = workers
        self._servers: queue.SimpleQueue[Server] = queue.SimpleQueue()
        self._cpu_s: dict[str, float] = {}
        first = folder / "0"
        shutil.copytree(root, first, symlinks=True, ignore=_NOT_COPIED)
        # Of the copy: the tree may change while this runs, and a changed file beside old ones kills every mutant of it.
        self._sources: dict[str, str] = {}
        self._all = [Server(first)]

    def measure(self, files: Iterable[str]) -> None:
        """Run tests as they are: they must pass, and their times are the limits of what follows."""
        unknown = sorted({name.partition("::")[0] for name in files} - self._cpu_s.keys())
        if not unknown:
            return
        task = {"by": "tests", "tests": unknown, "cpu_s": 900, "wall_s": 1800}
        answer = self._all[0].ask(task)
        if answer["killed_by"] is not None:
            sys.exit(
                f"tests fail without any mutation: {answer['killed_by']}\n{self._all[0].log()}"
            )
        self._cpu_s |= dict.fromkeys(unknown, 0.0) | answer["files"]

    def check(self, task: dict[str, Any]) -> None:
        """Carry out a task without any mutation: it must find nothing."""
        killed_by = self._all[0].ask(task)["killed_by"]
        if killed_by is not None:
            sys.exit(f"killed without any mutation: {killed_by}\n{self._all[0].log()}")

    def start(self) -> None:
        """Start the other servers, with copies that have the compiled tests already."""
        for number in range(1, self._workers):
            tree = self._folder / str(number)
            shutil.copytree(self._folder / "0", tree, symlinks=True)
            self._all.append(Server(tree))
        for server in self._all:
            self._servers.put(server)

    def tests_task(self, mutant: Mutant, tests: list[str], **more: Any) -> dict[str, Any]:
        usual_s = sum(self._cpu_s.get(name.partition("::")[0], 0.0) for name in tests)
        cpu_s = 3 * usual_s + 8
        return {"by": "tests", "tests": tests, "cpu_s": cpu_s, "wall_s": 8 * cpu_s} | more

    def each(
        self,
        mutants: Sequence[Mutant],
        tasks: Callable[[Mutant], Iterable[dict[str, Any]]],
        report: Callable[[Outcome], None],
    ) -> list[Outcome]:
        """Run each mutant's tasks until one kills it."""
        for file in {mutant.file for mutant in mutants} - self._sources.keys():
            self._sources[file] = (self._folder / "0" / file).read_text()

        def run(mutant: Mutant) -> Outcome:
            text = mutated(mutant, self._sources[mutant.file])
            server = self._servers.get()
            began = time.monotonic()
            killed_by = None
            try:
                for task in tasks(mutant):
                    killed_by = server.ask(task | {"file": mutant.file, "text": text})["killed_by"]
                    if killed_by is not None:
                        break
            finally:
                self._servers.put(server)
            outcome = Outcome(mutant, killed_by, time.monotonic() - began)
            report(outcome)
            return outcome

        with concurrent.futures.ThreadPoolExecutor(self._workers) as pool:
            return list(pool.map(run, mutants))

    def close(self) -> None:
        for server in self._all:
            server.close()


class Results:
    """What runs have found, in a file: {"tests" or "sim SEEDS": {id: {"by": text or null, "on": date}}}."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self.found: dict[str, dict[str, dict[str, Any]]] = {}
        if path.exists():
            self.found = json.loads(path.read_text())

    def killer(self, name: str) -> str | None:
        """The test that has killed a mutant before."""
        known = self.found.get("tests", {}).get(name)
        return None if known is None else known["by"]

    def keep(self, how: str, outcome: Outcome) -> None:
        entry = {"by": outcome.killed_by, "on": time.strftime("%Y-%m-%d", time.gmtime())}
        self._path.parent.mkdir(exist_ok=True)
        with self._lock, self._path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # another run may write, too
            if self._path.exists():
                self.found = json.loads(self._path.read_text())
            self.found.setdefault(how, {})[outcome.mutant.id] = entry
            self._path.write_text(json.dumps(self.found, indent=1))


def say(line: str) -> None:
    print(line, flush=True)


def line_of(outcome: Outcome) -> str:
    mutant = outcome.mutant
    if outcome.killed_by is not None:
        what = f"killed    {outcome.seconds:5.1f} s  {outcome.killed_by}"
    elif mutant.argued:
        what = f"argued    {outcome.seconds:5.1f} s  {mutant.argued}"
    else:
        what = f"SURVIVED  {outcome.seconds:5.1f} s  {mutant.file}: {mutant.rule}"
    return f"{mutant.id:6} {' '.join(what.split(chr(10))):.200}"


def by_tests(
    run: Run, mutants: list[Mutant], tests: TestMap, results: Results, *, only_near: bool
) -> list[Outcome]:
    """Run the tests of the module for each mutant, then all for those that survive."""
    run.measure({name for mutant in mutants for name in tests.near(mutant)})
    run.start()

    def near(mutant: Mutant) -> Iterable[dict[str, Any]]:
        known = results.killer(mutant.id)
        if known is not None and "::" in known and not mutant.argued:
            yield run.tests_task(mutant, [known], lenient=True)
        files = tests.near(mutant)  # in parts: to collect ten files takes longer than most tests
        for part in (files[:1], files[1:3], files[3:]):
            if part:
                yield run.tests_task(mutant, part)

    def report(outcome: Outcome) -> None:
        results.keep("tests", outcome)
        if outcome.killed_by is not None or outcome.mutant.argued or only_near:
            say(line_of(outcome))

    outcomes = run.each(mutants, near, report)
    left = [o.mutant for o in outcomes if o.killed_by is None and not o.mutant.argued]
    if only_near or not left:
        return outcomes
    run.measure(tests.wide)

    def wide(mutant: Mutant) -> Iterable[dict[str, Any]]:
        done = tests.near(mutant)
        yield run.tests_task(mutant, [name for name in tests.wide if name not in done])

    say(f"{len(left)} survived the tests of their module; now all tests of the core")

    def report_wide(outcome: Outcome) -> None:
        results.keep("tests", outcome)
        say(line_of(outcome))

    again = {o.mutant.id: o for o in run.each(left, wide, report_wide)}
    return [again.get(outcome.mutant.id, outcome) for outcome in outcomes]


def by_sim(
    run: Run, mutants: list[Mutant], seeds: str, steps: int, results: Results
) -> list[Outcome]:
    """Run seeds of the simulator for each mutant."""
    task = {"by": "sim", "seeds": seeds, "steps": steps, "cpu_s": 600, "wall_s": 3600}
    run.check(task)
    run.start()

    def report(outcome: Outcome) -> None:
        results.keep(f"sim {seeds}", outcome)
        say(line_of(outcome))

    return run.each(mutants, lambda mutant: [task], report)


def summary(outcomes: Sequence[Outcome]) -> tuple[list[str], float]:
    """A table by file, and the percentage killed of those that are not argued."""
    lines = [f"{'file':44} mutants  killed  argued  survived"]

    def row(name: str, some: Sequence[Outcome]) -> float:
        killed = sum(o.killed_by is not None for o in some)
        argued = sum(o.killed_by is None and bool(o.mutant.argued) for o in some)
        left = len(some) - killed - argued
        lines.append(f"{name:44} {len(some):7} {killed:7} {argued:7} {left or '':>9}".rstrip())
        return 100.0 * killed / max(killed + left, 1)

    for name in sorted({outcome.mutant.file for outcome in outcomes}):
        row(name, [outcome for outcome in outcomes if outcome.mutant.file == name])
    return lines, row("all", outcomes)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="mutants", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("words", nargs="*", metavar="WORD", help="an id, or a part of a path")
    parser.add_argument("--by", choices=("tests", "sim"), default="tests", help="what kills")
    parser.add_argument("--near", action="store_true", help="run the tests of the module only")
    parser.add_argument("--seeds", default="1-10", help="of the simulator: 7 or 1-20")
    parser.add_argument("--steps", type=int, default=4000, help="of one seed")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--wanted", type=float, help="percent killed; default 97, with --by sim 0")
    parser.add_argument("--every", type=int, default=1, help="take every so many of the entries")
    parser.add_argument("--new", action="store_true", help="only entries without a result")
    parser.add_argument("--page", action="store_true", help="print what is known, as a page")
    parser.add_argument("--list", action="store_true", help="print the chosen entries, run nothing")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    table = read_table(ROOT)
    if problems := unfit(table, ROOT):
        print("The table does not fit the source any more:", *problems, sep="\n  ")
        return 1
    results = Results(ROOT / RESULTS)
    if options.page:
        from mutants_page import page

        print(page(table, results.found), end="")
        return 0
    mutants = chosen(table, options.words)[:: options.every]
    if options.new:
        how = f"sim {options.seeds}" if options.by == "sim" else "tests"
        mutants = [mutant for mutant in mutants if mutant.id not in results.found.get(how, {})]
    if options.list:
        for mutant in mutants:
            print(f"{mutant.id:6} {mutant.file}: {mutant.rule}")
    if options.list or not mutants:
        print(f"{len(mutants)} of {len(table)} entries")
        return 0 if mutants else 1
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kwire-mutants-") as folder:
        run = Run(ROOT, Path(folder), min(options.workers, len(mutants)))

        try:
            if options.by == "sim":
                outcomes = by_sim(run, mutants, options.seeds, options.steps, results)
            else:
                tests = TestMap(ROOT)
                outcomes = by_tests(run, mutants, tests, results, only_near=options.near)
        finally:
            run.close()
    return conclude(outcomes, options, time.monotonic() - began)


def conclude(outcomes: Sequence[Outcome], options: argparse.Namespace, seconds: float) -> int:
    lines, percent = summary(outcomes)
    print("", *lines, sep="\n")
    survivors = [o.mutant for o in outcomes if o.killed_by is None and not o.mutant.argued]
    if survivors:
        print("\nSurvived:", *(f"{m.id:6} {m.file}: {m.rule}" for m in survivors), sep="\n  ")
    wrong = [o for o in outcomes if o.mutant.argued and o.killed_by is not None]
    if wrong and options.by == "tests":
        print("\nArgued to be invisible, but killed; take the argument away:")
        print("", *(f"{o.mutant.id:6} {o.killed_by}" for o in wrong), sep="\n  ")
    wanted = options.wanted if options.wanted is not None else WANTED_PERCENT
    if options.by == "sim" and options.wanted is None:
        wanted = 0.0
    print(f"\n{percent:.1f} % killed (wanted: {wanted:g} %) in {seconds:.0f} s")
    return 1 if percent < wanted or (wrong and options.by == "tests") else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
