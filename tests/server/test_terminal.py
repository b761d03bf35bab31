"""Log lines on a terminal, and what `kwire up` looks like there from its start to its end."""

from __future__ import annotations

import asyncio
import fcntl
import io
import json
import logging
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cluster_harness import until

from kwire.launch.spec import NodeSpec
from kwire.launch.welcome import welcome
from kwire.replication.core.events import ERROR, INFO, WARNING, Event, EventType
from kwire.replication.core.outbox import Log
from kwire.server import logs, terminal
from kwire.server.terminal import TerminalFormatter

_log = logging.getLogger("kwire.test")
TIME = r"\d\d:\d\d:\d\d\.\d\d\d"


class Sample:
    ROUTINE = EventType(INFO, "something happened", "node_id", "detail")
    BAD = EventType(WARNING, "worth a look: {why}")
    WORSE = EventType(ERROR, "gone")
    ASKED = EventType(INFO, "control: cut {a} | {b}")
    OWN = EventType(INFO, "controller 1000 is active")


class Screen(io.StringIO):
    """A terminal of a given width."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.columns = columns

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return 99_999


@pytest.fixture(autouse=True)
def kwires_logger() -> Iterator[None]:
    logger = logging.getLogger("kwire")
    saved = logger.handlers[:], logger.propagate, logger.level
    yield
    logger.handlers[:], logger.propagate = saved[0], saved[1]
    logger.setLevel(saved[2])


def configured(monkeypatch: pytest.MonkeyPatch, columns: int = 100, **options: Any) -> Screen:
    screen = Screen(columns)
    monkeypatch.setattr(TerminalFormatter, "_terminal_columns", lambda _: columns)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    logs.configure(options.pop("level", "info"), stream=screen, in_cluster=True, **options)
    return screen


def without_colours(text: str) -> str:
    return re.sub(r"\x1b\[\d+m", "", text)


def lines_of(screen: Screen) -> list[str]:
    """Lines without colours and times."""
    return [
        re.sub(f"^{TIME} ", "", each) for each in without_colours(screen.getvalue()).splitlines()
    ]


def test_a_line_has_local_time_the_node_and_the_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Etc/GMT-5")
    time.tzset()
    screen = configured(monkeypatch)
    before = time.strftime("%H:%M")
    logs.event(_log, Sample.ROUTINE, None, "broker 1", node_id=1, detail="not shown")
    text = without_colours(screen.getvalue())
    monkeypatch.delenv("TZ")
    time.tzset()
    assert re.fullmatch(rf"{TIME} broker 1         something happened\n", text)
    assert text[:5] in (before, time.strftime("%H:%M", time.gmtime(time.time() + 5 * 3600)))


def test_levels_are_words_and_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = configured(monkeypatch)
    logs.event(_log, Sample.BAD, None, "controller 1000", why="x")
    logs.event(_log, Sample.WORSE, None, "broker 2")
    logs.event(_log, Sample.ASKED, a=[1], b=[2, 3])
    logs.event(_log, Sample.OWN, None, "controller 1000")
    logging.getLogger("asyncio").error("a foreign\nrecord")
    assert lines_of(screen) == [
        "controller 1000  warning: worth a look: x",
        "broker 2         error: gone",
        "control          cut 1 | 2,3",
        "controller 1000  is active",
        "                 error: asyncio: a foreign",
        "record",
    ]
    first, second, *_ = screen.getvalue().splitlines()
    assert "\x1b[33mwarning: \x1b[0m" in first and "\x1b[31merror: \x1b[0m" in second
    assert "\x1b[32mbroker 2\x1b[0m" in second


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_colours_can_be_switched_off(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    configured(monkeypatch)
    monkeypatch.setenv(name, value)
    screen = Screen(100)
    logs.configure("info", stream=screen)
    logs.event(_log, Sample.BAD, None, "broker 1", why="x")
    assert "\x1b" not in screen.getvalue()


def test_long_lines_are_wrapped_below_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = configured(monkeypatch, 80)
    logs.event(_log, Sample.BAD, None, "broker 1", why="some words " * 9 + "x" * 99 + " end")
    lines = without_colours(screen.getvalue()).splitlines()
    assert [len(line) <= 80 for line in lines] == [True, True, True, False, True]
    assert {line[:30].strip() for line in lines[1:]} == {""} and lines[1][30] != " "
    assert " ".join(line.strip() for line in lines).endswith("x" * 99 + " end")
    narrow = configured(monkeypatch, 40)
    logs.event(_log, Sample.BAD, None, "broker 1", why="some words " * 9)
    assert all(re.match(r"    \S", line) for line in narrow.getvalue().splitlines()[1:])


def test_a_start_and_a_stop_in_order_show_warnings_only(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = configured(monkeypatch, is_quiet=True)
    logs.event(_log, Sample.ROUTINE, None, "broker 1", node_id=1, detail=None)
    logs.event(_log, Sample.BAD, None, "broker 1", why="x")
    logs.set_quiet(False)
    logs.event(_log, Sample.ROUTINE, None, "broker 2", node_id=1, detail=None)
    assert lines_of(screen) == [
        "broker 1         warning: worth a look: x",
        "broker 2         something happened",
    ]
    logs.set_quiet(True)
    fields = {"leader": 2, "detail": "x", "error": None, "partitions": 1}
    logs.write(Log(Event.LEADER_UNREACHABLE, fields, 17), 1, "broker 1")
    assert len(lines_of(screen)) == 2
    logs.set_quiet(False)
    logs.write(Log(Event.LEADER_UNREACHABLE, fields, 17), 1, "broker 1")
    assert lines_of(screen)[-1].strip().endswith("(1 partition)")
    debugging = configured(monkeypatch, is_quiet=True, level="debug")
    logs.event(_log, Sample.ROUTINE, None, "broker 1", node_id=1, detail=None)
    assert lines_of(debugging) == ["broker 1         something happened"]


@pytest.mark.asyncio
async def test_many_partitions_with_the_same_change_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def change(partition: int, kind: EventType = Event.PARTITION_OFFLINE) -> None:
        known = {"topic": "t", "partition": partition, "recovering": False, "reason": "leader_lost"}
        logs.write(Log(kind, {**dict.fromkeys(kind.fields), **known}, 17), 1000, "controller 1000")

    monkeypatch.setattr(terminal, "_BURST_SECONDS", 0.01)
    screen = configured(monkeypatch, 200)
    for partition in range(8):
        change(partition)
        change(partition, Event.REPLICA_DELETION_FAILED)
    change(7, Event.ISR_SHRUNK)
    assert [line.split()[3][:3] for line in lines_of(screen)[:10]] == [
        f"t-{number}" for number in range(5) for _ in range(2)
    ]
    assert len(lines_of(screen)) == 11 and " t-7: " in lines_of(screen)[-1]
    await asyncio.sleep(0.1)
    assert [line.strip() for line in lines_of(screen)[11:]] == [
        f"controller 1000  warning: 3 more likewise: {name}"
        for name in ("PARTITION_OFFLINE", "REPLICA_DELETION_FAILED")
    ]
    change(8)
    assert " t-8: " in lines_of(screen)[-1]
    for partition in range(9, 14):
        change(partition)
    logs.terminal().write_lines(["stopped"])  # type: ignore[union-attr]
    assert "2 more" not in screen.getvalue()
    assert lines_of(screen)[-2:] == [
        "controller 1000  warning: 1 more likewise: PARTITION_OFFLINE",
        "stopped",
    ]


def test_what_the_controller_says_too_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    fields = {"topic": "t", "partition": 0, "isr": [1], "previous_isr": [1, 2]}
    fields |= {"partition_epoch": 1, "leader_epoch": 1}
    updated = Log(Event.ISR_UPDATED, fields, 17)
    screen = configured(monkeypatch)
    logs.write(updated, 1, "broker 1")
    assert screen.getvalue() == ""
    screen = configured(monkeypatch, level="debug")
    logs.write(updated, 1, "broker 1")
    assert lines_of(screen) == ["broker 1         t-0: ISR updated to 1, partition epoch 1"]


@pytest.mark.parametrize("as_json", [True, False])
def test_json_and_pipes_are_as_ever(as_json: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen(80) if as_json else io.StringIO()
    logs.configure("info", as_json, screen, is_quiet=True)
    logs.event(_log, Sample.ROUTINE, None, "broker 1", node_id=1, detail=None)
    assert logs.terminal() is None
    if as_json:
        line = json.loads(screen.getvalue())
        assert (line["message"], line["node_id"]) == ("something happened", 1)
    else:
        text = screen.getvalue().split(" ", 1)[1]
        assert text == "INFO    kwire.test: broker 1: something happened node_id=1\n"


def test_a_traceback_follows_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = configured(monkeypatch)
    try:
        raise ValueError("a bug")
    except ValueError as error:
        logs.event(_log, Sample.WORSE, error, "broker 1")
    lines = lines_of(screen)
    assert lines[0] == "broker 1         error: gone" and lines[-1] == "ValueError: a bug"


def test_the_welcome_fits_and_says_what_becomes_of_the_data(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    spec = NodeSpec(node_id=1, temporary=True, data_dir="/tmp/x")
    monkeypatch.setenv("PATH", str(tmp_path))
    three = ",".join(f"127.0.0.1:{port}" for port in (50001, 50002, 50003))
    url = "http://127.0.0.1:50004"
    for bootstrap, control in ((three, url), ("127.0.0.1:9092", None)):
        lines = welcome(spec, bootstrap, control)
        assert all(len(line) <= 79 for line in lines), lines
        assert lines[-1] == "Ctrl-C stops, data is thrown away (--data-dir DIR keeps it)"
        assert (control is not None) == any(line.endswith(f"page: {url}/") for line in lines)
    secret = welcome(spec, three, "http://kwire:s3cret@127.0.0.1:50004")
    assert secret == welcome(spec, three, url), "the page asks for the token"
    assert "and 2 more" in welcome(spec, three, url)[0] and "kill 2" in welcome(spec, three, url)[1]
    assert "kcat" not in lines[0]
    (tmp_path / "kcat").touch(0o755)
    assert welcome(spec, "h:1", None)[0] == "Kafka at h:1 · kcat -b h:1 -L"
    kept = NodeSpec(node_id=1, temporary=False, data_dir="/my/data")
    assert welcome(kept, "h:1", None)[-1] == "Ctrl-C stops, data stays in /my/data"


# ---- kwire itself on a terminal


class Terminal:
    """A process on a pseudo-terminal of its own."""

    def __init__(self, master: int, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._master = master
        self._received = b""

    @property
    def text(self) -> str:
        return self._received.decode().replace("\r\n", "\n")

    def read(self) -> bool:
        """Read what has come; False at the end."""
        readable, _, _ = select.select([self._master], [], [], 0.05)
        if not readable:
            return True
        try:
            data = os.read(self._master, 65536)
        except OSError:
            data = b""
        self._received += data
        return bool(data)

    def wait_for(self, text: str) -> str:
        until(lambda: self.read() and text in self.text, 30)
        return self.text

    def stop(self) -> str:
        """Press Ctrl-C and wait for the end; what has come since."""
        before = len(self.text)
        os.write(self._master, b"\x03")
        until(lambda: not self.read(), 30)
        assert self.process.wait(10) == 0
        return self.text[before:]


@contextmanager
def on_terminal(*command: str, columns: int = 100, **environment: str) -> Iterator[Terminal]:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))

    def take_terminal() -> None:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    environ = {k: v for k, v in os.environ.items() if k != "NO_COLOR"}
    process = subprocess.Popen(
        [sys.executable, "-m", "kwire", *command],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**environ, "TERM": "xterm", **environment},
        preexec_fn=take_terminal,
    )
    os.close(slave)
    terminal = Terminal(master, process)
    try:
        yield terminal
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        os.close(master)


def test_one_broker_is_few_lines_from_start_to_end(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    with on_terminal("up", "--port", "0", "--topic", "a", "--data-dir", data) as terminal:
        start = terminal.wait_for("Ctrl-C stops, ")
        stop = terminal.stop()
    lines = without_colours(start).splitlines()
    (ready,) = [line for line in lines if line.startswith("ready ")]
    words = dict(word.split("=", 1) for word in ready.split()[1:])
    assert lines[0] == ready and len(lines) == 4, start
    assert lines[1].startswith(f"Kafka at {words['bootstrap']} · ")
    assert lines[2] == f"look inside: kwire topics · page: {words['control']}/"
    assert lines[3] == f"Ctrl-C stops, data stays in {data}"
    assert stop.replace("^C", "").strip() == "stopped"


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_a_cluster_shows_its_faults_and_little_else(isolation: str) -> None:
    with on_terminal("up", "--port", "0", "--brokers", "3", "--isolation", isolation) as terminal:
        start = terminal.wait_for("Ctrl-C stops, data is thrown away (--data-dir DIR keeps it)\n")
        url = re.search(r" control=(\S+)", start)
        assert url is not None and len(start.splitlines()) == 4, start
        ask(f"{url[1]}/v1/brokers/2/kill")
        terminal.wait_for("its connection has ended")
        ask(f"{url[1]}/v1/brokers/2/start")
        terminal.wait_for("broker 2 has registered with epoch 4")
        stop = terminal.stop()
    happened = terminal.text[len(start) : -len(stop)].splitlines()
    shown = [re.sub(f"^{TIME} ", "", without_colours(line)) for line in happened]
    assert shown[0] == "control          kill broker 2"
    failed = "controller 1000  warning: broker 2 (epoch 2) has failed: its connection has ended"
    assert re.sub(r"epoch \d", "epoch 2", shown[1]) == failed
    assert shown[2] == "control          start broker 2"
    assert all(re.match(rf"\x1b\[2m{TIME}\x1b\[0m ", line) for line in happened), happened
    assert all("node_id" not in line and "kwire." not in line for line in shown)
    assert stop.replace("^C", "").strip() == "stopped", stop


def test_a_failure_at_a_terminal_is_its_line_alone(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with on_terminal("up", "--port", "0", "--data-dir", str(tmp_path / "file")) as terminal:
        until(lambda: not terminal.read(), 30)
        assert terminal.process.wait(10) == 1
    assert terminal.text.startswith("kwire up: ") and terminal.text.count("\n") == 1


def ask(url: str) -> None:
    urllib.request.urlopen(urllib.request.Request(url, b"{}", method="POST")).read()


def test_the_first_registration_of_a_broker_belongs_to_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen = configured(monkeypatch)
    for epoch in (1, 2):
        fields = {"broker_id": 1, "broker_epoch": epoch, "rack": None, "controller_epoch": 1}
        logs.write(Log(Event.BROKER_REGISTERED, fields, 17), 1000, "controller 1000")
    assert lines_of(screen) == ["controller 1000  broker 1 has registered with epoch 2"]


def test_what_a_restart_leaves_to_be_done_is_no_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replicas come into the ISR and leaders go back: nothing has happened since the start."""
    screen = configured(monkeypatch)

    def change(kind: EventType, reason: str) -> None:
        fields = dict.fromkeys(kind.fields) | {"topic": "t", "partition": 0, "reason": reason}
        logs.write(Log(kind, fields, 17), 1000, "controller 1000")

    for _ in range(2):
        change(Event.ISR_EXPANDED, "asked_by_the_leader")
        change(Event.LEADER_ELECTED, "preferred")
    assert lines_of(screen) == []
    change(Event.ISR_SHRUNK, "failed")
    change(Event.ISR_EXPANDED, "asked_by_the_leader")
    change(Event.LEADER_ELECTED, "preferred")
    assert len(lines_of(screen)) == 3
