"""`kwire` as a process: ready line and file, signals, exit statuses, one clear line for each failure."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import server_harness
from click.testing import CliRunner

TIMEOUT = 20


def kwire(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kwire", *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )


class Up:
    """A running `kwire up`."""

    def __init__(self, process: subprocess.Popen[str], ready: str) -> None:
        self.process = process
        self.ready = ready

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.ready.split()[1].removeprefix("bootstrap=").rpartition(":")
        return host, int(port)

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Sends a signal; exit status and what was on stderr."""
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=TIMEOUT)
        return self.process.returncode, errors


@contextlib.contextmanager
def kwire_up(*arguments: str) -> Iterator[Up]:
    with server_harness.kwire_up(*arguments) as (process, line):
        yield Up(process, line)


def assert_one_line(result: subprocess.CompletedProcess[str], status: int, *words: str) -> None:
    assert result.returncode == status, result
    lines = result.stderr.strip().split("\n")
    assert len(lines) == 1, result.stderr
    for word in words:
        assert word in lines[0], lines[0]
    assert result.stdout == ""


# ---- up and down


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_up_says_ready_and_stops_with_0_on_a_signal(number: int) -> None:
    with kwire_up() as up:
        ready = rf"ready bootstrap=127\.0\.0\.1:{up.address[1]} control=http://127\.0\.0\.1:\d+\n"
        assert re.fullmatch(ready, up.ready)
        socket.create_connection(up.address, 5).close()
        status, errors = up.stop(number)
        assert status == 0
        assert "Traceback" not in errors


def test_the_ready_file_says_the_same_as_json_and_goes_with_the_node(tmp_path: Path) -> None:
    path = tmp_path / "ready.json"
    path.write_text("of an earlier run")
    with kwire_up("--ready-file", str(path)) as up:
        ready = json.loads(path.read_text())
        assert ready["pid"] == up.process.pid
        assert up.ready == f"ready bootstrap={ready['bootstrap']} control={ready['control']}\n"
        assert up.stop()[0] == 0
        assert os.listdir(tmp_path) == []


def test_a_temporary_data_directory_is_gone_after_a_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with kwire_up("--topic", "orders:3") as up:
        (data_dir,) = tmp_path.iterdir()
        assert (data_dir / "kwire-controller.journal").is_file()
        assert up.stop()[0] == 0
        assert list(tmp_path.iterdir()) == []


def test_a_data_directory_survives_a_stop_and_a_kill(tmp_path: Path) -> None:
    data = tmp_path / "data"
    both = ["orders-0", "orders-1"]  # made when they are needed, or at a clean stop
    for number, status, options, names in (
        (signal.SIGKILL, -9, ["--topic", "orders:2"], []),
        (signal.SIGTERM, 0, [], both),
        (signal.SIGKILL, -9, [], both),
        (signal.SIGTERM, 0, [], both),
    ):
        with kwire_up("--data-dir", str(data), *options) as up:
            assert up.stop(number)[0] == status
        assert sorted(path.name for path in data.glob("orders-*")) == names


def test_options_reach_the_configuration(tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text(
        "# a comment\nbroker.id=7\nzookeeper.connect=localhost:2181\nmy.own.key=1\nnum.partitions=3\n"
    )
    with kwire_up("--config", str(properties), "-c", "num.partitions=4") as up:
        status, errors = up.stop()
        assert status == 0
    assert "my.own.key" in errors  # unknown to Kafka: a warning
    assert "zookeeper.connect" not in errors  # known, without effect


def test_the_advertised_host_is_what_clients_are_told() -> None:
    with kwire_up("--host", "0.0.0.0", "--advertise", "localhost") as up:
        assert up.ready.startswith("ready bootstrap=localhost:")
        socket.create_connection(("127.0.0.1", up.address[1]), 5).close()


def test_json_logs_are_json_in_every_line() -> None:
    with kwire_up("--log-json", "--log-level", "debug") as up:
        socket.create_connection(up.address, 5).close()
        _, errors = up.stop()
    lines = [json.loads(line) for line in errors.splitlines()]
    assert {"time", "level", "logger", "event"} <= set(lines[0])
    assert any(
        line["event"] == "LISTENER_STARTED" and line["listener"] == "PLAINTEXT" for line in lines
    )


# ---- refusals


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--nonsense"], ["--nonsense"]),
        (["--port", "70000"], ["--port", "70000"]),
        (["--brokers", "0"], ["--brokers", "a number of 1 or more, not 0"]),
        (
            ["--brokers", "3", "--port", "65534"],
            ["--port 65534 with 3 brokers needs ports up to 65536"],
        ),
        (["-c", "node.id=x"], ["node.id", "x", "INT"]),
        (["--brokers", "2", "-c", "node.id=x"], ["node.id", "x", "INT"]),
        (["--control-port", "70000"], ["--control-port", "70000"]),
        (["-c", "num.partitions"], ["num.partitions", "key=value"]),
        (["-c", "num.partitions=many"], ["num.partitions", "many", "INT"]),
        (["-c", "num.partitions=0"], ["num.partitions", "0", "at least 1"]),
        (["-c", "compression.type=rar"], ["compression.type", "rar", "zstd"]),
        (
            ["-c", "listeners=PLAINTEXT://:9092,SSL://:9093"],
            ["ssl.keystore.location", "a listener with TLS needs it", "--tls makes"],
        ),
        (["-c", "listeners=FOO://:9092"], ["listeners", "FOO", "listener.security.protocol.map"]),
        (["-c", "listeners=PLAINTEXT:9092"], ["listeners", "NAME://host:port"]),
        (["-c", "listeners=PLAINTEXT://[::1"], ["listeners", "[::1"]),
        (["-c", "advertised.listeners=PLAINTEXT://0.0.0.0:1"], ["advertised.listeners", "0.0.0.0"]),
        (["--advertise", "foo:99"], ["--advertise", "expected a host", "advertised.listeners"]),
        (["-c", "inter.broker.listener.name=X"], ["inter.broker.listener.name", "PLAINTEXT"]),
        (["-c", "log.dirs=/tmp/a,/tmp/./a"], ["Duplicate log directory", "/tmp/a"]),
        (["--as-version", "1.1"], ["--as-version", "1.1", "3.9"]),
        (["--topic", "a:0"], ["--topic", "a:0"]),
        (["--topic", "a:1:1:1"], ["--topic", "NAME[:PARTITIONS[:REPLICATION]]"]),
        (["--topic", "a/b"], ["--topic", "a/b"]),
        (["--topic", "a:1:3"], ["--topic", "a", "eplication factor"]),
        (["--log-level", "loud"], ["--log-level", "warning"]),
    ],
)
def test_a_bad_option_is_status_2_and_one_line(arguments: list[str], words: list[str]) -> None:
    if "-c" in arguments and any(a.startswith("listeners=") for a in arguments):
        result = kwire("up", "--log-level", "error", *arguments)
    else:
        result = kwire("up", "--log-level", "error", "--port", "0", *arguments)
    assert_one_line(result, 2, *words)


def test_a_taken_port_is_status_1_and_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        words = f"127.0.0.1:{port}", "taken", "; another port: --port"
        assert_one_line(kwire("up", "--port", port), 1, *words)


@pytest.mark.parametrize(
    ("host", "words"),
    [
        ("no-such-host.invalid", ["no-such-host.invalid", "listener PLAINTEXT"]),
        ("192.0.2.1", ["192.0.2.1", "cannot assign requested address"]),
    ],
)
def test_a_host_that_cannot_be_bound_is_status_1_and_one_line(host: str, words: list[str]) -> None:
    result = kwire("up", "--port", "0", "--host", host)
    assert_one_line(result, 1, "cannot listen", *words)
    assert "errno" not in result.stderr.lower()


def test_a_locked_data_directory_is_status_1_and_one_line(tmp_path: Path) -> None:
    data = str(tmp_path)
    with kwire_up("--data-dir", data):
        result = kwire("up", "--log-level", "error", "--port", "0", "--data-dir", data)
        assert_one_line(result, 1, data, "in use")


def test_a_data_directory_that_is_a_file_is_status_1_and_one_line(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("")
    result = kwire("up", "--log-level", "error", "--port", "0", "--data-dir", str(path))
    assert_one_line(result, 1, str(path))


def test_a_data_directory_of_another_node_is_status_1_and_one_line(tmp_path: Path) -> None:
    data = str(tmp_path)
    with kwire_up("--data-dir", data) as up:
        assert up.stop()[0] == 0
    result = kwire(
        "up", "--log-level", "error", "--port", "0", "--data-dir", data, "--first-id", "5"
    )
    assert_one_line(result, 1, data, "5")


@pytest.mark.parametrize("brokers", ["1", "2"])
def test_a_ready_line_that_nobody_can_read_is_status_1_and_one_line(brokers: str) -> None:
    command = f"exec {sys.executable} -m kwire up --port 0 --log-level error --brokers {brokers}"
    for to, said in ((">&-", "stdout is closed"), (">/dev/full", "No space left on device")):
        done = subprocess.run(
            ["sh", "-c", f"{command} {to}"], capture_output=True, text=True, timeout=20
        )
        assert_one_line(done, 1, "ready line", said)


def test_a_nodes_ready_line_that_nobody_can_read_is_status_1_and_one_line(tmp_path: Path) -> None:
    command = f"exec {sys.executable} -m kwire node --id 1000 --roles controller --log-level error"
    for to, said in ((">&-", "stdout is closed"), (">/dev/full", "No space left on device")):
        done = subprocess.run(
            ["sh", "-c", f"{command} --data-dir {tmp_path} {to}"],
            capture_output=True,
            text=True,
            timeout=20,
        )
        assert_one_line(done, 1, "ready line", said)


@pytest.mark.parametrize("command", ["config", "dump-log none", "ctl status"])
def test_a_closed_stdout_is_status_1_and_one_line(command: str) -> None:
    done = subprocess.run(
        ["sh", "-c", f"exec {sys.executable} -m kwire {command} >&-"],
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert_one_line(done, 1, "stdout is closed")


def test_a_missing_properties_file_is_status_1_and_a_broken_one_2(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    assert_one_line(kwire("up", "--config", str(path)), 1, str(path), "No such file")
    path.write_text("a=\\u12")
    assert_one_line(kwire("up", "--config", str(path)), 2, str(path), "hexadecimal")


# ---- the other commands


def test_every_command_has_an_example_in_its_help() -> None:
    from kwire.cli.main import SECTIONS

    for command in [name for section in SECTIONS.values() for name in section]:
        result = kwire(command, "--help")
        assert result.returncode == 0
        assert f"kwire {command}" in re.split("Examples?:", result.stdout)[1]


def test_the_help_has_a_whole_sentence_for_every_command() -> None:
    text = kwire("--help").stdout
    assert "..." not in text.removeprefix("Usage: kwire [OPTIONS] COMMAND [ARGS]...")
    for name in ("up", "down", "topics", "dump-log"):
        assert re.search(rf"^  {name} +[A-Z]", text, re.MULTILINE), name


def test_version() -> None:
    result = kwire("--version")
    assert (result.returncode, result.stdout.split()[0]) == (0, "kwire")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_know_the_command(shell: str) -> None:
    result = kwire("completion", shell)
    assert result.returncode == 0
    assert "_KWIRE_COMPLETE" in result.stdout


@pytest.mark.parametrize(
    ("words", "proposed"),
    [
        ("kwire d", ["down", "dump-log"]),
        ("kwire topics c", ["create"]),
        ("kwire ctl hea", ["heal"]),
        ("kwire ctl broker pa", ["pause"]),
        ("kwire up --det", ["--detach"]),
        ("kwire completion f", ["fish"]),
    ],
)
def test_completion_knows_commands_and_options(words: str, proposed: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kwire"],
        env={
            **os.environ,
            "_KWIRE_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split()) - 1),
        },
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert [line.partition(",")[2] for line in done.stdout.splitlines()] == proposed, done


def test_config_shows_what_was_set_first() -> None:
    result = kwire("config", "-c", "num.partitions=7")
    assert result.returncode == 0
    lines = result.stdout.splitlines()
    assert "num.partitions=7" in lines[:5]
    assert "group.initial.rebalance.delay.ms=0" in lines


@pytest.mark.parametrize("brokers", ["1", "2"])
def test_a_key_that_would_protect_is_status_2_and_one_line(brokers: str) -> None:
    key = "authorizer.class.name"
    for command in (["up", "--port", "0", "--brokers", brokers], ["config", "--unused"]):
        result = kwire(*command, "-c", f"{key}=my.Authorizer", "-c", "ssl.keystore.password=hush")
        assert_one_line(result, 2, key, "my.Authorizer", "own authorizer", "leave this key out")


def test_keys_that_exclude_each_other_are_status_2_and_one_line(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("replica.fetch.wait.max.ms=4000\n")
    socket = "replica.socket.timeout.ms=1500"
    node = ["node", "--id", "2", "--roles", "broker", "--controller", "1@localhost:1", "--data-dir"]
    for command in (
        ["up", "--port", "0"],
        ["up", "--port", "0", "--brokers", "2", "--isolation", "process"],
        ["config"],
        [*node, str(tmp_path / "d")],
    ):
        result = kwire(*command, "--config", str(file), "-c", socket)
        assert_one_line(result, 2, "4000", "replica.fetch.wait.max.ms", "replica.socket.timeout.ms")


def test_a_node_alone_that_would_keep_requests_for_nobody_is_status_2(tmp_path: Path) -> None:
    command = ["node", "--id", "2", "--roles", "controller", "--data-dir", str(tmp_path / "d")]
    assert_one_line(kwire(*command, "--recent-requests"), 2, "--recent-requests", "no control API")


def test_a_key_that_would_protect_ends_a_node_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("listener.name.plaintext.ssl.keystore.filename=k.jks\nnode.id=2\n")
    command = ["node", "--id", "2", "--roles", "controller", "--data-dir", str(tmp_path / "d")]
    result = kwire(*command, "--config", str(path))
    assert_one_line(
        result, 2, "listener.name.plaintext.ssl.keystore.filename", "by ssl.keystore.location"
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--port", "1", "-c", "listeners=PLAINTEXT://:2"], "--port 1 and -c listeners="),
        (["--host", "::1", "-c", "listeners=PLAINTEXT://:2"], "--host ::1 and -c listeners="),
        (
            ["--advertise", "h", "-c", "advertised.listeners=PLAINTEXT://x:1"],
            "--advertise h and -c advertised.listeners=PLAINTEXT://x:1: give one of them",
        ),
        (["--first-id", "3", "-c", "node.id=4"], "--first-id 3 and -c node.id=4"),
        (["--first-id", "3", "-c", "broker.id=4"], "--first-id 3 and -c broker.id=4"),
    ],
)
def test_what_is_given_twice_is_status_2_and_one_line(arguments: list[str], words: str) -> None:
    assert_one_line(kwire("up", *arguments), 2, words)


def test_a_port_replaces_the_listeners_of_a_file_unless_they_are_secure(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("listeners=PLAINTEXT://:1\nadvertised.listeners=PLAINTEXT://elsewhere:1\n")
    with kwire_up("--config", str(path)) as up:  # --port 0 is added
        assert up.address[0] == "127.0.0.1" and up.address[1] > 1
    path.write_text("listeners=SASL_PLAINTEXT://:1\n")
    result = kwire("up", "--port", "0", "--config", str(path))
    assert_one_line(result, 2, "SASL_PLAINTEXT", "security.inter.broker.protocol")


@pytest.mark.parametrize("brokers", ["1", "2"])
def test_keys_without_effect_are_one_warning_with_their_names(brokers: str) -> None:
    given = ["num.io.threads=99", "group.consumer.max.size=7", "group.share.max.size=7"]
    options = [word for item in given for word in ("-c", item)]
    with kwire_up("--brokers", brokers, "--log-json", "-c", "foo.bar=1", *options) as up:
        status, text = up.stop()
    lines = [json.loads(line) for line in text.splitlines()]
    warnings = {line["event"]: line for line in lines if line["level"] == "warning"}
    assert status == 0 and set(warnings) == {"UNKNOWN_CONFIG_KEY", "CONFIG_WITHOUT_EFFECT"}
    assert warnings["CONFIG_WITHOUT_EFFECT"]["keys"] == [
        "group.consumer.max.size",
        "group.share.max.size",
    ]
    assert warnings["UNKNOWN_CONFIG_KEY"]["message"] == "unknown configuration key foo.bar, ignored"


def test_config_unused_lists_keys_without_effect(tmp_path: Path) -> None:
    everything = kwire("config", "--unused").stdout.splitlines()
    assert "zookeeper.connect" in everything
    assert "num.partitions" not in everything
    result = kwire(
        "config",
        "--unused",
        "-c",
        "zookeeper.connect=x",
        "-c",
        "my.key=1",
        "-c",
        "num.partitions=1",
    )
    assert result.stdout.splitlines() == ["zookeeper.connect", "my.key  # not a key of Kafka's"]


def test_config_shows_single_keys_and_names_unknown_ones() -> None:
    result = kwire("config", "num.partitions", "zookeeper.connect", "-c", "num.partitions=7")
    assert (result.returncode, result.stdout) == (0, "num.partitions=7\nzookeeper.connect=\n")
    assert_one_line(
        kwire("config", "num.partition"),
        2,
        "num.partition is not a key of Kafka's; did you mean num.partitions?",
    )
    result = kwire("config", "foo.bar", "-c", "foo.bar=1", "-c", "bar=2")
    assert (result.returncode, result.stdout) == (0, "foo.bar=1\n")
    assert result.stderr.splitlines() == [
        "kwire config: bar is not a key of Kafka's",
        "kwire config: foo.bar is not a key of Kafka's",
    ]
    assert_one_line(kwire("config", "--unused", "num.partitions"), 2, "not both")
    key = "delegation.token.secret.key"
    assert kwire("config", key, "-c", f"{key}=hush").stdout == f"{key}=[hidden]\n"


def test_dump_log_prints_batches_and_records_and_finds_damage(tmp_path: Path) -> None:
    from kwire.protocol.record_builder import build_batch
    from kwire.protocol.records import Record

    batch = build_batch([Record(-1, 5, b"k", "v\u00e9".encode(), [("h", b"\xff")])], base_offset=3)
    path = tmp_path / "00000000000000000003.log"
    path.write_bytes(batch + batch)
    result = kwire("dump-log", str(path))
    assert result.returncode == 0
    assert result.stdout.count("offsets 3-3 count=1") == 2
    assert "3 at=5 key=k value=vé headers: h=b'\\xff'" in result.stdout
    path.write_bytes(batch + batch[:-1])
    result = kwire("dump-log", "--no-records", str(path))
    assert result.returncode == 1
    assert f"{len(batch)}: DAMAGED" in result.stdout
    path.write_bytes(batch[:-1] + b"x")
    assert "CRC WRONG" in kwire("dump-log", str(path)).stdout


def test_dump_log_of_directories(tmp_path: Path) -> None:
    """A partition: its segments in order; a data directory: every partition."""
    from kwire.protocol.record_builder import build_batch
    from kwire.protocol.records import Record

    def segment(folder: str, offset: int, value: bytes | None) -> Path:
        path = tmp_path / "data" / folder / f"{offset:020}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        batch = build_batch([Record(-1, 5, None, value)], base_offset=offset) if value else b""
        path.write_bytes(batch)
        return path

    paths = [
        segment("broker-1/a-0", 0, b"first"),
        segment("broker-1/a-2", 0, None),
        segment("broker-1/a-10", 0, b"second"),
        segment("broker-1/a-10", 7, b"third"),
        segment("broker-2/a-0", 0, b"fourth"),
    ]
    (paths[0].parent / f"{0:020}.index").write_bytes(b"")
    (paths[0].parent / f"{0:020}.log.deleted").write_bytes(b"x")
    result = kwire("dump-log", str(tmp_path / "data"))
    assert (result.returncode, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert [line.removesuffix(":") for line in lines if line.endswith(".log:")] == [
        *map(str, paths)
    ]
    assert lines[lines.index(f"{paths[1]}:") + 1] == "empty"
    result = kwire("dump-log", "--no-records", str(paths[2].parent))
    assert [line for line in result.stdout.splitlines() if ".log:" in line] == [
        f"{paths[2]}:",
        f"{paths[3]}:",
    ]
    (tmp_path / "none").mkdir()
    assert_one_line(kwire("dump-log", str(tmp_path / "none")), 1, "no log segments in")


def test_dump_log_names_a_partition_that_it_may_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kwire.cli.main import cli

    for name in ("a-0", "a-1", "a-2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{0:020}.log").touch()
    scan = os.scandir

    def refuse(path: str) -> Iterator[os.DirEntry[str]]:
        if os.path.basename(path) == "a-1":  # as for a user who is not root
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    done = CliRunner().invoke(cli, ["dump-log", str(tmp_path)])
    assert done.exit_code == 1
    assert [line for line in done.stdout.splitlines() if line != "empty"] == [
        f"{tmp_path}/{name}/{0:020}.log:" for name in ("a-0", "a-2")
    ]
    assert done.stderr == f"kwire dump-log: {tmp_path}/a-1: Permission denied\n"
    done = CliRunner().invoke(cli, ["dump-log", str(tmp_path / "a-1")])
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == f"kwire dump-log: {tmp_path}/a-1: Permission denied\n"


def test_a_broker_says_which_controller_it_waits_for(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    command = ["node", "--id", "2", "--roles", "broker", "--data-dir", str(tmp_path)]
    command += ["--controller", f"1000@127.0.0.1:{port}", "-c", "num.partition=3"]
    process = subprocess.Popen(
        [sys.executable, "-m", "kwire", *command], stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        assert "did you mean num.partitions?" in process.stderr.readline()
        assert f"waiting for the controller at 127.0.0.1:{port}" in process.stderr.readline()
    finally:
        process.terminate()
        process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0


def test_dump_log_shows_what_is_beside_a_segment(tmp_path: Path) -> None:
    from struct import pack

    from kwire.replication.log.producer_state import ProducerStateEntry, format_snapshot

    producer = ProducerStateEntry(7)
    producer.producer_epoch = 2
    files = {
        "00000000000000000100.index": pack(">iiii", 5, 4096, 9, 8300) + bytes(80),
        "00000000000000000100.timeindex": pack(">qiqi", 1000, 5, 1002, 9),
        "00000000000000000100.txnindex": pack(">hqqqq", 0, 7, 101, 104, 101),
        "00000000000000000100.snapshot": format_snapshot([producer]),
        "leader-epoch-checkpoint": b"0\n1\n3 100\n",
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    result = kwire("dump-log", *(str(tmp_path / name) for name in files))
    assert result.returncode == 0, result.stdout
    lines = [line for line in result.stdout.splitlines() if str(tmp_path) not in line]
    assert lines == [
        "105 → 4096",
        "109 → 8300",
        "2: zeros from here on (preallocated)",
        "1000 → 105",
        "1002 → 109",
        "producer=7 offsets 101-104 last-stable=101",
        "producer=7/2 last-sequence=-1 last-offset=-1 at=-1",
        "0",
        "1",
        "3 100",
    ]


def test_dump_log_finds_damage_beside_a_segment_and_names_other_files(tmp_path: Path) -> None:
    index, snapshot, other = (
        tmp_path / f"{0:020}.index",
        tmp_path / f"{0:020}.snapshot",
        tmp_path / "notes.txt",
    )
    index.write_bytes(bytes([0, 0, 0, 1, 0, 0, 0, 9, 7]))
    snapshot.write_bytes(b"x" * 30)
    other.write_bytes(b"x")
    for path in (index, snapshot):
        result = kwire("dump-log", str(path))
        assert (result.returncode, result.stdout.count("DAMAGED")) == (1, 1)
    result = kwire("dump-log", str(other), str(index))
    assert (result.returncode, result.stdout.count("DAMAGED")) == (1, 1)
    assert result.stderr == f"kwire dump-log: not a file of a log: {other}\n"


def test_a_closed_stdout_ends_a_command_that_prints_without_a_word() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        command = [sys.executable, "-m", "kwire", "config"]
        done = subprocess.run(command, stdout=write_end, stderr=subprocess.PIPE, timeout=60)
    finally:
        os.close(write_end)
    assert (done.returncode, done.stderr) == (141, b"")


def test_dump_log_of_no_file_is_status_1_and_one_line(tmp_path: Path) -> None:
    result = kwire("dump-log", str(tmp_path / "none"))
    assert result.returncode == 1
    assert "No such file" in result.stderr


def test_the_compatibility_page_is_what_the_table_says() -> None:
    from kwire.apis.compatibility import compatibility_page

    page = Path(__file__).parent.parent / "docs" / "compatibility.md"
    assert page.read_text() == compatibility_page(), (
        "run: python -m kwire.apis.compatibility > docs/compatibility.md"
    )
