"""Rules about the source that no linter knows: rooms, purity, settings, names, numbers, sizes, attributes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kwire.protocol.api import ApiKey
from kwire.replication.config.broker_config import KEYS_READ_AS_TEXT

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("kwire", "protocol", "replication")
MODULES_IN_A_FOLDER = 20
# Folders that may have more modules: a definition file for each API family is Kafka's own number.
LARGE_FOLDERS = {"protocol/schemas"}


def sources() -> Iterator[Path]:
    """Every module of the product, once: kwire/protocol and kwire/replication are links."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            relative = path.relative_to(ROOT)
            if relative.parts[:2] not in (("kwire", "protocol"), ("kwire", "replication")):
                yield relative


SOURCES = list(sources())


def module_name(path: Path) -> str:
    parts = path.with_suffix("").parts
    name = ".".join(parts if parts[0] == "kwire" else ("kwire", *parts))
    return name.removesuffix(".__init__")


MODULES = {module_name(path) for path in SOURCES}
TREES = {path: ast.parse((ROOT / path).read_text()) for path in SOURCES}


def doors() -> dict[str, set[str]]:
    """The modules that each room opens to others: `__all__` of its `__init__`, where that names modules."""
    found = {}
    for path in SOURCES:
        if path.name != "__init__.py":
            continue
        room = module_name(path)
        for node in TREES[path].body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                names = set(ast.literal_eval(node.value))
                if all(f"{room}.{name}" in MODULES for name in names):
                    found[room] = names
    return found


DOORS = doors()


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and module of each import from kwire, wherever it stands."""
    for node in ast.walk(TREES[path]):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("kwire"):
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield node.lineno, full if full in MODULES else node.module
        elif isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names if alias.name in MODULES)


def room_of(module: str) -> str | None:
    return next((room for room in DOORS if module.startswith(f"{room}.")), None)


def test_the_rooms_have_doors() -> None:
    assert len(DOORS) >= 18


def test_rooms_are_entered_by_their_doors() -> None:
    """A module of another room is imported only when the `__all__` of that room's `__init__.py` names it."""
    used: dict[str, set[str]] = {room: set() for room in DOORS}
    strangers = []
    for path in SOURCES:
        here = room_of(module_name(path)) or module_name(path)
        for line, module in imports(path):
            room = room_of(module)
            if room is None or room == here:
                continue
            name = module.removeprefix(f"{room}.")
            used[room].add(name)
            if name not in DOORS[room]:
                strangers.append(f"{path}:{line} imports {module}, which {room} does not open")
    assert not strangers, "\n".join(strangers)
    closed = [f"{room}: {name}" for room in DOORS for name in sorted(DOORS[room] - used[room])]
    assert not closed, f"doors that nobody uses: {closed}"


@pytest.mark.parametrize("folder", sorted({str(path.parent) for path in SOURCES}))
def test_a_folder_has_a_readable_number_of_modules(folder: str) -> None:
    modules = [path for path in SOURCES if str(path.parent) == folder and path.stem[0] != "_"]
    assert len(modules) <= MODULES_IN_A_FOLDER or folder in LARGE_FOLDERS


# --- the purity line

BELOW_THE_LINE = (
    *("protocol", "replication", "kwire/coordinator", "kwire/shards", "kwire/transactions"),
    *("kwire/apis", "kwire/sim"),
    *("kwire/broker.py", "kwire/controller_node.py", "kwire/core.py", "kwire/session.py"),
    "kwire/leftovers.py",
    "kwire/recent.py",
    "kwire/quotas",
)
# Everything else that can be imported may do I/O, wait, read a clock or draw a random number.
PURE_MODULES = {
    *("__future__", "base64", "binascii", "bisect", "collections", "collections.abc", "contextlib"),
    *(
        "dataclasses",
        "difflib",
        "enum",
        "errno",
        "hashlib",
        "heapq",
        "hmac",
        "importlib",
        "itertools",
    ),
    *("json", "linecache", "math", "mmap", "struct", "types", "typing", "zlib"),
    *("construct", "cramjam", "fastcrc.crc32"),
}
IMPURE_CALLS = {"open", "print", "input", "breakpoint", "__import__"}
# file: (what it may import and call beyond that, why)
IMPURE = {
    "protocol/check.py": ("gzip sys open print", "a tool: reads golden files"),
    "protocol/fuzz.py": ("sys open print", "a tool: replays a fuzzer's files"),
    "protocol/show.py": ("sys print", "a tool: prints generated code"),
    "protocol/language/reference.py": ("io", "construct reads a BytesIO, in memory"),
    "kwire/apis/parts/patterns.py": ("re", "patterns of transactional ids"),
    "kwire/apis/access/authority.py": ("ipaddress", "hosts of access rules are written as in Java"),
    "replication/core/principals.py": ("ipaddress", "the bytes of an address; no I/O"),
    "kwire/apis/access/page.py": ("sys", "a tool: prints docs/authorization.md"),
    "kwire/apis/compatibility.py": ("sys", "a tool: prints docs/compatibility.md"),
    "kwire/sim/faults/nemesis.py": ("random", "faults are drawn from the seed"),
    "kwire/sim/plan.py": ("random", "a plan is drawn from the seed"),
    "kwire/sim/state/pieces.py": ("random", "the seed says how small pieces are"),
    "kwire/sim/simulation.py": ("random", "everything is drawn from the seed"),
}


def is_below_the_line(path: Path) -> bool:
    return path.as_posix().startswith(BELOW_THE_LINE)


def at_run_time(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those under `if TYPE_CHECKING`."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        yield child
        yield from at_run_time(child)


def impurities(path: Path) -> Iterator[tuple[str, int]]:
    """Foreign modules and calls of a file that are not known to be pure, each with its line."""
    for node in at_run_time(TREES[path]):
        modules: list[str] = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [node.module or ""]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            seedless = node.func.id == "Random" and not node.args
            if node.func.id in IMPURE_CALLS or seedless:
                yield "Random()" if seedless else node.func.id, node.lineno
        for module in modules:
            if module not in PURE_MODULES and module.split(".")[0] != "kwire":
                yield module, node.lineno


def test_below_the_purity_line_nothing_does_io_waits_reads_a_clock_or_draws_a_number() -> None:
    found = {path.as_posix(): list(impurities(path)) for path in SOURCES if is_below_the_line(path)}
    assert len(found) > 150
    allowed = {path: set(names.split()) for path, (names, _) in IMPURE.items()}
    wrong = [
        f"{path}:{line} {name}"
        for path, uses in found.items()
        for name, line in uses
        if name not in allowed.get(path, ())
    ]
    assert not wrong, "below the purity line: " + ", ".join(wrong)
    unused = {
        path: names - {name for name, _ in found.get(path, ())} for path, names in allowed.items()
    }
    assert not any(unused.values()), f"exceptions that are no longer needed: {unused}"


# --- life cycles

# Fields of messages: some APIs have them, others do not.
FIELDS_ASKED_FOR = {
    *("broker_epoch", "diverging_epoch", "error_code", "error_message", "throttle_time_ms"),
    *("timeout_ms", "topic_id", "group_id", "transactional_id"),
}


def missing_attributes(path: Path) -> Iterator[tuple[str, int]]:
    """Where code asks whether there is an attribute that it names, and the line."""
    for node in ast.walk(TREES[path]):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and (node.func.id, len(node.args)) in {("hasattr", 2), ("getattr", 3)}
            and isinstance(node.args[1], ast.Constant)
        ):
            yield node.args[1].value, node.lineno


def test_what_is_not_there_yet_is_a_state_or_none_below_the_purity_line() -> None:
    """A life cycle is an Enum with a table of moves (replication/fetcher/state.py), never a missing attribute."""
    found = [
        (f"{path}:{line}", name)
        for path in SOURCES
        if is_below_the_line(path)
        for name, line in missing_attributes(path)
    ]
    assert {name for _, name in found} >= {"error_code"}
    wrong = [f"{where} {name}" for where, name in found if name not in FIELDS_ASKED_FOR]
    assert not wrong, f"asked for by name: {wrong}"


# --- settings

SETTINGS_CLASS = re.compile(r"\w+(Settings|Config|Spec)$")
# Other classes have attributes of the same names: only what is read of something called a configuration counts.
READ_OF_A_CONFIG = {"BrokerConfig", "LogConfig"}
CONFIG_EXPRESSION = re.compile(r"(.*\.)?_?config$|.*log_config\(.*\)$")


def own_attributes(node: ast.ClassDef) -> set[str]:
    """The public attributes of a class: annotated in its body, or assigned to `self`."""
    found = {ast.unparse(one.target) for one in node.body if isinstance(one, ast.AnnAssign)}
    for one in ast.walk(node):
        if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store):
            found |= {one.attr} if ast.unparse(one.value) == "self" else set()
    return {name for name in found if name[0] != "_"}


SETTINGS = {
    node.name: own_attributes(node)
    for path, tree in TREES.items()
    if path.parts[:2] != ("protocol", "schemas")
    for node in tree.body
    if isinstance(node, ast.ClassDef) and SETTINGS_CLASS.match(node.name)
}


def attributes_read(names: set[str]) -> Iterator[tuple[str, str, Path]]:
    """(expression, attribute, file) wherever an attribute of these names is read."""
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Attribute)
                and node.attr in names
                and isinstance(node.ctx, ast.Load)
            ):
                yield ast.unparse(node.value), node.attr, path


def test_settings_are_found() -> None:
    assert {"BrokerConfig", "LogConfig", "GroupConfig"} < SETTINGS.keys()
    assert "num_partitions" in SETTINGS["BrokerConfig"]
    assert "group_max_size" in SETTINGS["GroupConfig"]


def test_every_attribute_of_settings_is_read() -> None:
    """`kwire config --unused` and the documentation of keys trust it."""
    read, read_of_a_config = set(), set()
    for expression, name, path in attributes_read(set().union(*SETTINGS.values())):
        read.add(name)
        own = expression == "self" and path.name == "broker_config.py"
        if own or CONFIG_EXPRESSION.match(expression):
            read_of_a_config.add(name)
    unread = {
        f"{settings}.{name}"
        for settings, names in SETTINGS.items()
        for name in names - (read_of_a_config if settings in READ_OF_A_CONFIG else read)
    }
    assert not unread, f"no code reads {sorted(unread)}: delete them, or act on them"
    both = SETTINGS["BrokerConfig"] & SETTINGS["LogConfig"]
    assert not both, f"a read of {both} could be of either"


def test_keys_read_as_text_are_read() -> None:
    texts = {
        node.value
        for path, tree in TREES.items()
        if path.parts[:2] != ("replication", "config")
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert texts >= KEYS_READ_AS_TEXT


# --- dead names

# Modules whose names are for users.
PUBLIC = {
    *("kwire/aio.py", "kwire/cluster.py", "kwire/spark.py", "kwire/spark_audit.py"),
    "kwire/pytest_plugin.py",
}
PUBLIC |= {"kwire/load/ledger.py", "kwire/pipeline/ledger.py"}
PUBLIC |= {"kwire/virtual/world.py", "kwire/virtual/real.py"}
# Tables: Kafka's (names of the wire, errors, positions in a layout), and those that an audit writes.
TABLES = {"protocol/schemas", "protocol/errors.py", "kwire/audit/tables.py"}
# Names that no code of kwire mentions, and who uses them.
USED_BY_OTHERS = {
    "asyncio, of its loops": "_write_to_self _process_events getnameinfo remove_signal_handler",
    "asyncio, of its servers": "get_loop start_serving serve_forever",
    "asyncio, of its transports": "can_write_eof is_reading get_write_buffer_limits set_write_buffer_limits"
    " get_protocol set_protocol",
    "clients, of a transport's socket": "getsockopt getpeername",
    "pytest": "pytest_runtest_setup pytest_runtest_teardown",
    "click": "format_commands list_commands",
    "construct": "_decode",
    "PySpark": "streamReader initialOffset latestOffset",
    "tests that count what cannot be seen otherwise": "delivered",
}


def definitions(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Name and line of each function, class, attribute of `self`, and variable of a module or class."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield from [(node.attr, node.lineno)] if ast.unparse(node.value) == "self" else ()
        if isinstance(node, ast.Module | ast.ClassDef):
            for one in node.body:
                targets = one.targets if isinstance(one, ast.Assign) else ()
                targets = [one.target] if isinstance(one, ast.AnnAssign) else targets
                yield from ((each.id, one.lineno) for each in targets if isinstance(each, ast.Name))


def mentions(tree: ast.Module) -> Iterator[str]:
    """Every name that is read, imported, or stands in a text as it does in tables: "name", "module:name"."""
    lists = {
        id(text)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in ("__slots__", "__all__")
        for text in ast.walk(node.value)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield node.attr
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.name.rpartition(".")[2] for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from () if id(node) in lists else (node.value.rpartition(":")[2],)


def test_every_name_is_used() -> None:
    """Deleting is the cure; what only a test used belongs to the test."""
    used = {name for tree in TREES.values() for name in mentions(tree)}
    wire = {
        name
        for path, tree in TREES.items()
        if path.as_posix().startswith("protocol/schemas/")
        for name, _ in definitions(tree)
    }
    others = {name for names in USED_BY_OTHERS.values() for name in names.split()}
    found = [
        (name, f"{path}:{line} {name}")
        for path, tree in TREES.items()
        if not path.as_posix().startswith((*PUBLIC, *TABLES))
        for name, line in definitions(tree)
        if name not in used | wire and not name.startswith("__")
    ]
    dead = sorted(where for name, where in found if name not in others)
    assert not dead, "no code uses " + ", ".join(dead)
    stale = others - {name for name, _ in found}
    assert not stale, f"exceptions that are no longer needed: {stale}"


# --- names for numbers

# Two constants of one name and value that are not one fact.
COINCIDENCES = {
    "TYPE_CHECKING": "each module's own",
    "_log": "each module's own",
    "_T": "each module's own",
    "INT32 INT64": "layouts, made where they are used",
    "POLL_SECONDS READ_BYTES RETRY_MS STEP_INTERVAL_MS FAILURES_KEPT": "sizes and pauses that may part",
    "CHANNEL": "who sends there names it",
    "DATA_DIR": "inside the image, and what is known of it outside",
    "Buffer": "a type, spelled where no import is worth its time",
    "FETCH": "plain numbers on fast paths",
    "MAX_PARTITIONS": "of an option, and of a variable",
    "keys": "caches",
}


def constants(tree: ast.Module) -> Iterator[tuple[str, ast.expr, int]]:
    """Name without a leading underscore, value and line of each variable of a module."""
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else ()
        targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
        for target in targets:
            if isinstance(target, ast.Name) and node.value is not None:  # type: ignore[union-attr]
                yield target.id.lstrip("_"), node.value, node.lineno  # type: ignore[union-attr]


def test_a_constant_is_defined_once() -> None:
    """In `replication/core/types.py`, if no other place is its own."""
    places: dict[tuple[str, str], list[str]] = {}
    for path, tree in TREES.items():
        for name, value, line in constants(tree) if "schemas" not in path.parts else ():
            places.setdefault((name, constant_text(value)), []).append(f"{path}:{line}")
    allowed = {name.lstrip("_") for names in COINCIDENCES for name in names.split()}
    twice = {
        f"{name} = {value}": where
        for (name, value), where in places.items()
        if len(where) > 1 and name not in allowed
    }
    assert not twice, "\n".join(f"{what}: {', '.join(where)}" for what, where in twice.items())


def constant_text(value: ast.expr) -> str:
    """The value of a number, however it is written; the text of everything else."""
    text = ast.unparse(value)
    return str(eval(text)) if re.fullmatch(r"[-0-9xa-fA-F()<*+ ]+", text) else text


def is_number(node: ast.expr, *, zero: bool = True) -> bool:
    """An integer, or several. `zero`: 0 and -1 are numbers too."""
    if isinstance(node, ast.Tuple | ast.Set | ast.List):
        return bool(node.elts) and all(is_number(one, zero=zero) for one in node.elts)
    if isinstance(node, ast.UnaryOp):
        return zero and is_number(node.operand)
    return isinstance(node, ast.Constant) and type(node.value) is int and (zero or node.value > 0)


def unnamed_numbers(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of API keys and error codes that are written as numbers."""
    coded = re.compile(r"(.*[._])?(error|error_code|api_key|api)$")
    taking_keys = {"administrate", "encode_request", "encode_response", "parse_response"}
    taking_keys |= {"request_class", "response_class", "ApiKey", "ErrorCode"}
    for node in ast.walk(TREES[path]):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            number = any(is_number(side, zero=False) for side in sides)
            if number and any(coded.match(ast.unparse(side)) for side in sides):
                yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.Call) and node.args and is_number(node.args[0]):
            if ast.unparse(node.func).rpartition(".")[2] in taking_keys:
                yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.keyword) and node.arg in ("error_code", "api_key"):
            if is_number(node.value, zero=False):
                yield node.value.lineno, ast.unparse(node)
        elif isinstance(node, ast.Assign) and is_number(node.value, zero=False):
            target = ast.unparse(node.targets[0])
            yield from (
                [(node.lineno, target)] if target.endswith((".error_code", ".api_key")) else ()
            )
    for name, value, line in constants(TREES[path]):
        if name in ApiKey.__members__ and is_number(value):
            yield line, f"{name} = {ast.unparse(value)}"


def test_api_keys_and_error_codes_are_named() -> None:
    """`ApiKey.FETCH`, not 1; 0 as an error code is none, and may stay."""
    own = {"protocol/api.py", "protocol/errors.py"}  # the tables themselves
    own.add("kwire/coordinator/group_records.py")  # OFFSET_COMMIT is the type of a record
    unnamed = [
        f"{path}:{line} {text}"
        for path in SOURCES
        if path.as_posix() not in own and "schemas" not in path.parts
        for line, text in unnamed_numbers(path)
    ]
    assert not unnamed, "\n".join(unnamed)


# --- sizes

FILE_LINES, FUNCTION_LINES = 400, 40
SIZES = ROOT / "tests" / "source_sizes.txt"


def large_ones() -> Iterator[tuple[str, int]]:
    """Files and functions beyond the limits, "path" or "path:function", and how many lines they have."""
    for path in SOURCES:
        if path.parts[:2] == ("protocol", "schemas"):
            continue  # as many definitions as Kafka's family of messages has
        if path == Path("kwire/cluster.py"):
            continue  # most of it is generated from kwire/aio.py
        lines = len((ROOT / path).read_text().splitlines())
        if lines > FILE_LINES:
            yield path.as_posix(), lines
        for node in ast.walk(TREES[path]):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                if lines > FUNCTION_LINES:
                    yield f"{path.as_posix()}:{node.name}", lines


def test_files_and_functions_are_small_and_large_ones_only_shrink() -> None:
    """`tests/source_sizes.txt` lists the exceptions with their ceilings: lower or delete a line, never raise it."""
    ceilings = {}
    for line in SIZES.read_text().splitlines():
        ceiling, _, name = line.partition(" ")
        ceilings[name] = int(ceiling)
    found: dict[str, int] = {}
    for name, lines in large_ones():
        found[name] = max(lines, found.get(name, 0))
    grown = [
        f"{name}: {lines} lines, at most {ceilings.get(name, FUNCTION_LINES if ':' in name else FILE_LINES)}"
        for name, lines in found.items()
        if lines > ceilings.get(name, 0)
    ]
    assert not grown, "\n".join(grown)
    slack = [name for name, ceiling in ceilings.items() if ceiling > found.get(name, 0) + 50]
    assert not slack, f"lower or delete the ceilings of {slack}"


# --- attributes

# Below the line an own object has its attributes or is in another state: it is not asked whether it has them.
# Messages of the wire have no common base of fields, so these files may ask one for a field by its literal name.
ASK_MESSAGES = {
    "kwire/apis/parts/chunks.py": "error_code, where a response has it",
    "kwire/apis/parts/results.py": "what requests of all kinds name, in fields that differ",
    "kwire/quotas/requests.py": "throttle_time_ms, where a response has it",
    "kwire/recent.py": "what requests of all kinds are about",
    "kwire/sim/describe.py": "traces of requests of all kinds",
    "replication/controller/brokers/registry.py": "broker_epoch, where a request has one",
    "replication/controller/controller.py": "timeout_ms and broker_epoch, where a request has them",
    "replication/controller/refusals.py": "error_message, where a response has it",
    "replication/member/controller_link.py": "timeout_ms, where a request has it",
}


def test_no_object_is_asked_whether_it_has_an_attribute() -> None:
    asking = {
        path.as_posix(): f"{path}:{node.lineno} {ast.unparse(node)}"
        for path in SOURCES
        if is_below_the_line(path)
        for node in ast.walk(TREES[path])
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("getattr", "hasattr")
        and isinstance(node.args[1], ast.Constant)
    }
    wrong = [where for path, where in asking.items() if path not in ASK_MESSAGES]
    assert not wrong, "\n".join(wrong)
    assert not ASK_MESSAGES.keys() - asking.keys(), "exceptions that are no longer needed"


# --- one way to write it

SECTION = re.compile(r" *# ?(-{2,}|={2,}|\*{2,})")
ONE_SECTION = re.compile(r" *# --- \S[^-]*(-[^-]+)*$")


def test_sections_and_imports_for_types_are_written_in_one_way() -> None:
    """`# --- words`, without fill. `TYPE_CHECKING = False`: a start imports a hundred modules, 4 µs each."""
    wrong = []
    for path in SOURCES:
        lines = (ROOT / path).read_text().splitlines()
        wrong += [
            f"{path}:{number} {line.strip()[:40]}"
            for number, line in enumerate(lines, 1)
            if SECTION.match(line) and not ONE_SECTION.match(line)
        ]
        wrong += [
            f"{path}:{node.lineno} imports TYPE_CHECKING"
            for node in ast.walk(TREES[path])
            if isinstance(node, ast.ImportFrom)
            and any(alias.name == "TYPE_CHECKING" for alias in node.names)
        ]
    assert not wrong, "\n".join(wrong)
