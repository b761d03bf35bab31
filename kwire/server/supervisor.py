"""A cluster's nodes: started, stopped, killed and started again, on one event loop or in a process each.

Answers to no class of Kafka's; its tests have KafkaClusterTestKit. The controller is node 1000 (or the first free id
above the brokers), always a node of its own; brokers have the ids that were asked for. More controllers, that take
over from it, have the next ids and share its directory. Between nodes everything crosses TCP, whatever the isolation.

Invariants: a node keeps its ports and its directory from one run to the next; a process that ends unasked is told in
one line and takes nobody with it; nothing that was started outlives `stop`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from contextlib import ExitStack, suppress

from kwire.replication.config_table import BROKER_KEYS
from kwire.server.listeners import format_address
from kwire.server.logs import event
from kwire.server.node_runner import BROKER, CONTROLLER, NodeRunner, NodeSettings, reachable
from kwire.server.settings import NodeError, SettingsError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_log = logging.getLogger(__name__)

THREAD, PROCESS = "thread", "process"
CONTROLLER_ID = 1000
START_SECONDS = 30.0
STOP_SECONDS = 15.0
_STATUS_SECONDS = 2.0
_MEMBERSHIP_CHECK_SECONDS = 0.005
_MAX_ANSWER_BYTES = 16 << 20  # of a process to a question
_TURNS_TO_CLOSE = 10
_INTERNAL = "KWIRE_INTERNAL"
_INTER_BROKER_KEYS = {"inter.broker.listener.name", "security.inter.broker.protocol"}


class ThreadHandle:
    """A node on this event loop."""

    def __init__(self, node_id: int, settings: NodeSettings) -> None:
        self.node_id = node_id
        self.settings = settings
        self.runner: NodeRunner | None = None
        self.address = ("", 0)  # to connect to from this machine
        self.advertised = ""

    @property
    def running(self) -> bool:
        return self.runner is not None

    @property
    def pid(self) -> int:
        return os.getpid()

    async def start(self) -> None:
        runner = NodeRunner(self.settings)
        await runner.start(wait_seconds=START_SECONDS)
        self.runner = runner
        self.address, self.advertised = runner.address, runner.advertised
        self.settings.values["listeners"] = runner.listeners
        self.settings.again = True

    async def stop(self, *, controlled: bool = True) -> None:
        runner, self.runner = self.runner, None
        if runner is not None:
            await runner.stop(controlled=controlled)

    async def kill(self) -> None:
        runner, self.runner = self.runner, None
        if runner is not None:
            runner.kill()
            await asyncio.sleep(0)

    def pause(self) -> None:
        """Stands still until `resume`."""
        if self.runner is not None:
            self.runner.node.pause()

    def resume(self) -> None:
        """Undoes `pause`."""
        if self.runner is not None:
            self.runner.node.resume()

    async def network(self, command: str) -> None:
        """NodeRunner.network. ValueError for a command that makes no sense; NodeError when the node does not run."""
        if self.runner is None:
            raise NodeError(f"node {self.node_id} does not run")
        _network_answered(self.runner.network(command))

    async def ask(self, *question: object) -> Any:
        """What a question of `inside.py` is answered with. KafkaError for what is refused; NodeError."""
        if self.runner is None:
            raise NodeError(f"node {self.node_id} does not run")
        return _answered(self.runner.answer(json.dumps(question)))


class ProcessHandle:
    """A node in a process of its own: `python -m kwire node …`."""

    def __init__(
        self,
        node_id: int,
        settings: NodeSettings,
        log_options: list[str],
        on_death: Callable[[int, int], None],
    ) -> None:
        """`on_death(node id, return code)`: the process has ended, and nobody here asked for that."""
        self.node_id = node_id
        self.settings = settings
        self.address = ("", 0)  # to connect to from this machine
        self.advertised = ""
        self._log_options = log_options
        self._on_death = on_death
        self._process: asyncio.subprocess.Process | None = None
        self._ending = False
        self._asking = asyncio.Lock()
        self._exchanges: set[asyncio.Task[str]] = set()
        self.log_path: str | None = None  # for what it logs, instead of this process's stderr
        self._watcher: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        return self._process is not None

    @property
    def pid(self) -> int:
        return -1 if self._process is None else self._process.pid

    async def start(self) -> None:
        self._ending = False
        with ExitStack() as files:
            log = None
            if self.log_path is not None:
                log = files.enter_context(open(self.log_path, "ab"))
            self._process = process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "kwire",
                *_arguments(self.node_id, self.settings),
                *self._log_options,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                limit=_MAX_ANSWER_BYTES,
                start_new_session=True,  # Ctrl-C is for the supervisor, who stops the nodes in order
            )
        assert process.stdout is not None
        try:
            async with asyncio.timeout(START_SECONDS):
                line = (await process.stdout.readline()).decode().strip()
        except BaseException as error:
            await self.kill()
            if isinstance(error, TimeoutError):
                raise NodeError("it was not ready in time") from None
            raise
        word, _, rest = line.partition(" ")
        if word != "ready":
            await process.wait()
            self._process = None
            if word == "failed":
                status, _, text = rest.partition(" ")
                raise (SettingsError if status == "2" else NodeError)(text)
            raise NodeError(f"its process ended with status {process.returncode}")
        found = dict(item.split("=", 1) for item in rest.split(" "))
        first = found["listeners"].split(",")[0].partition("://")[2]
        self.address = reachable(first)
        self.advertised = found["bootstrap"]
        self.settings.values["listeners"] = found["listeners"]
        self.settings.again = True
        self._watcher = asyncio.get_running_loop().create_task(self._watch(process))

    async def _watch(self, process: asyncio.subprocess.Process) -> None:
        await process.wait()
        if self._process is process:
            self._process = None
        if not self._ending:
            self._on_death(self.node_id, process.returncode or 0)

    async def stop(self, *, controlled: bool = True) -> None:
        process = self._process
        if process is None:
            return
        self._ending = True
        if controlled:
            process.send_signal(signal.SIGTERM)
        else:
            assert process.stdin is not None
            process.stdin.close()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await process.wait()
        except TimeoutError:
            event(_log, logging.WARNING, "node does not stop, killed", node_id=self.node_id)
            await self.kill()
        self._process = None
        if process.returncode:
            raise NodeError(f"node {self.node_id} stopped with status {process.returncode}")

    async def kill(self) -> None:
        process = self._process
        if process is None:
            return
        self._ending = True
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        self._process = None

    async def network(self, command: str) -> None:
        """NodeRunner.network. ValueError for a command that makes no sense; NodeError when the node does not run."""
        _network_answered(await self._ask(command))

    async def ask(self, *question: object) -> Any:
        """What a question of `inside.py` is answered with. KafkaError for what is refused; NodeError."""
        return _answered(await self._ask(json.dumps(question)))

    async def _ask(self, line: str) -> str:
        # Answers come in the order of the questions: who gives up waiting must not leave his to the next.
        exchange = asyncio.get_running_loop().create_task(self._exchange(line))
        self._exchanges.add(exchange)
        exchange.add_done_callback(self._exchanges.discard)
        answer = await asyncio.shield(exchange)
        if not answer:
            raise NodeError(f"node {self.node_id} does not run")
        return answer

    async def _exchange(self, line: str) -> str:
        """The answer to a line; "" when there is none."""
        async with self._asking:
            process = self._process
            if process is None:
                return ""
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(line.encode() + b"\n")
            return (await process.stdout.readline()).decode().strip()

    def pause(self) -> None:
        """Stands still until `resume`."""
        self.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Undoes `pause`."""
        self.send_signal(signal.SIGCONT)

    def send_signal(self, number: int) -> None:
        """Any signal, if it runs."""
        if self._process is not None:
            self._process.send_signal(number)


Handle = ThreadHandle | ProcessHandle


def _answered(answer: str) -> Any:
    found = json.loads(answer)
    if "error" in found:
        from kwire.protocol.errors import ErrorCode, KafkaError

        raise KafkaError(ErrorCode[found["error"]], found["message"])
    return found["ok"]


def _network_answered(answer: str) -> None:
    if answer != "done":
        raise ValueError(answer)


def _arguments(node_id: int, settings: NodeSettings) -> list[str]:
    arguments = ["node", "--supervised", "--id", str(node_id), "--roles", settings.role]
    arguments += ["--brokers", str(settings.brokers), "--data-dir", settings.data_dir]
    if settings.cluster_id is not None:
        arguments += ["--cluster-id", settings.cluster_id]
    if settings.controller is not None:
        for controller_id, host, port in (settings.controller, *settings.more_controllers):
            arguments += ["--controller", f"{controller_id}@{format_address(host, port)}"]
    if settings.standby:
        arguments.append("--standby")
    if settings.as_version is not None:
        arguments += ["--as-version", settings.as_version]
    if settings.temporary:
        arguments.append("--temporary")
    if settings.again:
        arguments.append("--again")
    if settings.recent_requests:
        arguments.append("--recent-requests")
    for command in settings.network:
        arguments += ["--network", command]
    for key, value in settings.values.items():
        arguments += ["-c", f"{key}={value}"]
    return arguments


class Supervisor:
    """All nodes of one cluster. `await start()`, … `await stop()`."""

    def __init__(
        self,
        values: dict[str, str],
        data_dir: str,
        *,
        brokers: int,
        controllers: int = 1,
        isolation: str = THREAD,
        first_id: int = 1,
        temporary: bool = False,
        as_version: str | None = None,
        cluster_id: str | None = None,
        overrides: dict[int, dict[str, str]] | None = None,
        log_options: list[str] | None = None,
        recent_requests: bool = False,
    ) -> None:
        """`values`: every broker's configuration; ports in its listeners are those of the first broker, the next one
        has the next ones, and so on (0 stays 0). `overrides`: keys of single brokers (broker.rack, say), by id.
        `controllers`: how many; one of them is active.

        `log_options`: those of the command line, for processes. `recent_requests`: brokers keep them (kwire.recent)."""
        self.isolation = isolation
        self.data_dir = data_dir
        self._log_options = log_options or []
        self._stopping = False
        self.deaths: list[tuple[str, str, int]] = []  # of processes, unasked: who, how, return code
        last_id = first_id + brokers - 1
        self.controller_id = CONTROLLER_ID
        if first_id < CONTROLLER_ID + controllers and last_id >= CONTROLLER_ID:
            self.controller_id = last_id + 1
        self._base = {
            key: value
            for key, value in values.items()
            if key not in ("node.id", "broker.id", "log.dir", "log.dirs")
        }
        self._cluster_id = cluster_id or _stored_cluster_id(data_dir)
        common = {
            "cluster_id": self._cluster_id,
            "brokers": brokers,
            "temporary": temporary,
            "as_version": as_version,
        }
        own = {
            key: value
            for key, value in self._base.items()
            if not key.startswith(
                ("listener", "advertised.", "inter.broker.", "controller.listener")
            )
            and key not in ("security.inter.broker.protocol", "broker.rack")
        }
        host = values["listeners"].partition("://")[2].partition(",")[0].rpartition(":")[0]
        own["listeners"] = f"PLAINTEXT://{host or '127.0.0.1'}:0"
        self.controllers: dict[int, Handle] = {}
        for node_id in range(self.controller_id, self.controller_id + controllers):
            settings = NodeSettings(
                CONTROLLER,
                {**own, "node.id": str(node_id)},
                os.path.join(data_dir, "controller"),
                standby=controllers > 1,
                **common,  # type: ignore[arg-type]
            )
            self.controllers[node_id] = self._handle(node_id, settings)
        self.controller = self.controllers[self.controller_id]
        self.brokers: dict[int, Handle] = {}
        for number in range(brokers):
            node_id = first_id + number
            own = {**self._base, **_shifted_ports(self._base, number), "node.id": str(node_id)}
            own.update((overrides or {}).get(node_id, {}))
            _add_internal_listener(own)
            settings = NodeSettings(
                BROKER,
                own,
                os.path.join(data_dir, f"broker-{node_id}"),
                recent_requests=recent_requests,
                **common,  # type: ignore[arg-type]
            )
            self.brokers[node_id] = self._handle(node_id, settings)

    def _handle(self, node_id: int, settings: NodeSettings) -> Handle:
        if self.isolation == PROCESS:
            return ProcessHandle(node_id, settings, self._log_options, self._died)
        return ThreadHandle(node_id, settings)

    def _died(self, node_id: int, status: int) -> None:
        if not self._stopping:
            how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"status {status}"
            what = self._name(node_id)
            self.deaths.append((what, how, status))
            event(_log, logging.ERROR, f"{what} has ended ({how}); the others go on")

    def _name(self, node_id: int) -> str:
        if node_id not in self.controllers:
            return f"broker {node_id}"
        return "the controller" if len(self.controllers) == 1 else f"controller {node_id}"

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers, as clients are told them."""
        return ",".join(handle.advertised for handle in self.brokers.values())

    # -- the whole cluster ---------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Starts everything; returns when every broker knows of every other. NodeError, SettingsError: nothing runs."""
        self._stopping = False
        try:
            os.makedirs(self.data_dir, exist_ok=True)
            for handle in self.controllers.values():  # in turn: the first is the active one
                await self._start_node(handle)
            addresses = [(node_id, *each.address) for node_id, each in self.controllers.items()]
            for handle in self.brokers.values():
                handle.settings.controller, *handle.settings.more_controllers = addresses
            starts = [self._start_node(handle) for handle in self.brokers.values()]
            results = await asyncio.gather(*starts, return_exceptions=True)
            for failure in results:
                if isinstance(failure, BaseException):
                    raise failure
            await self.wait_for_members()
        except BaseException:
            await self.kill()
            raise

    async def _start_node(self, handle: Handle) -> None:
        try:
            await handle.start()
        except NodeError as error:
            raise NodeError(f"{self._name(handle.node_id)}: {error}") from None

    async def stop(self) -> None:
        """Stops everything cleanly, controllers first: nobody need take over anything."""
        self._stopping = True
        failures: list[BaseException] = []
        await (
            _settle_connections()
        )  # an asyncio server that is closed while it accepts forgets the socket
        for handles in (self.controllers, self.brokers):
            stops = [handle.stop(controlled=False) for handle in handles.values()]
            results = await asyncio.gather(*stops, return_exceptions=True)
            failures += [failure for failure in results if isinstance(failure, BaseException)]
            await _settle_connections()
        if failures:
            raise failures[0]

    async def kill(self) -> None:
        """Ends what runs, at once."""
        self._stopping = True
        for handle in (*self.brokers.values(), *self.controllers.values()):
            await handle.kill()
        await _settle_connections()

    async def tell_status(self) -> None:
        """Writes into the log how every node is: `status.py`."""
        from kwire.server.status import tell

        for handle in (*self.controllers.values(), *self.brokers.values()):
            if not handle.running:
                event(_log, logging.INFO, "does not run", node_id=handle.node_id)
                continue
            try:
                # Shielded: an answer that comes too late must not be taken for that to the next question.
                asking = asyncio.shield(handle.ask("status"))
                tell(handle.node_id, await asyncio.wait_for(asking, _STATUS_SECONDS))
            except (TimeoutError, NodeError):
                event(_log, logging.INFO, "does not answer", node_id=handle.node_id)

    async def wait_for_members(self, seconds: float = START_SECONDS) -> None:
        """Returns when every running broker's metadata lists exactly the running brokers."""
        wanted = {node_id for node_id, handle in self.brokers.items() if handle.running}
        deadline = asyncio.get_running_loop().time() + seconds
        for node_id in wanted:
            while await self._members_seen_by(self.brokers[node_id]) != wanted:
                if asyncio.get_running_loop().time() > deadline:
                    raise NodeError(f"broker {node_id} does not see the others")
                await asyncio.sleep(_MEMBERSHIP_CHECK_SECONDS)

    async def _members_seen_by(self, handle: Handle) -> set[int]:
        if isinstance(handle, ThreadHandle):
            if handle.runner is None:
                return set()
            return set(handle.runner.core.services.metadata.brokers)  # type: ignore[union-attr]  # a broker
        from kwire.protocol.schemas.cluster import DescribeClusterRequest
        from kwire.server.wire_client import ask

        try:
            response = await ask(*handle.address, 0, DescribeClusterRequest())
        except (OSError, EOFError, TimeoutError):
            return set()
        return {broker.broker_id for broker in response.brokers}

    async def create_topics(
        self,
        topics: list[tuple[str, int, int]],
        configs: dict[str, dict[str, str]] | None = None,
    ) -> None:
        """Creates topics (name, partitions, replication; -1: default) that do not exist. `configs`: by topic.

        SettingsError for what is refused."""
        from kwire.protocol.errors import ErrorCode
        from kwire.protocol.schemas.topics import (
            CreatableTopic,
            CreatableTopicConfig,
            CreateTopicsRequest,
        )
        from kwire.server.wire_client import ask

        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name,
                    num_partitions=partitions,
                    replication_factor=replication,
                    configs=[
                        CreatableTopicConfig(name=key, value=value)
                        for key, value in (configs or {}).get(name, {}).items()
                    ],
                )
                for name, partitions, replication in topics
            ],
            timeout_ms=20_000,
        )
        handle = next(iter(self.brokers.values()))
        try:
            response = await ask(*handle.address, 7, request, 30.0)
        except (OSError, EOFError, TimeoutError) as error:
            raise NodeError(f"--topic: broker {handle.node_id}: {error or 'no answer'}") from None
        for result in response.topics:
            code = ErrorCode(result.error_code)
            if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                raise SettingsError(f"--topic {result.name}: {result.error_message or code.name}")


async def _settle_connections() -> None:
    """Connections that were being made are given up, those that were ended are closed: asyncio takes a few turns."""
    for _ in range(_TURNS_TO_CLOSE):
        await asyncio.sleep(0)


def _stored_cluster_id(data_dir: str) -> str:
    """The id of the cluster whose directory it is; a new one for a new directory."""
    from kwire.replication.checkpoints import encode_uuid

    with suppress(OSError), open(os.path.join(data_dir, "controller", "meta.properties")) as file:
        for line in file:
            key, _, value = line.strip().partition("=")
            if key == "cluster.id" and value:
                return value
    cluster_id = "-"
    while cluster_id.startswith("-"):
        cluster_id = encode_uuid(os.urandom(16)).decode()
    return cluster_id


def _add_internal_listener(values: dict[str, str]) -> None:
    """Where clients are told another address than the one that is bound, the nodes, all on this machine, need not be
    able to reach it: they get a listener of their own."""
    if not values.get("advertised.listeners") or _INTER_BROKER_KEYS & values.keys():
        return
    protocols = values.get("listener.security.protocol.map")
    own_protocol = f"{_INTERNAL}:PLAINTEXT"
    if protocols is None:
        protocols = BROKER_KEYS["listener.security.protocol.map"][1]
    values["listener.security.protocol.map"] = f"{protocols},{own_protocol}"
    for key in ("listeners", "advertised.listeners"):
        values[key] += f",{_INTERNAL}://127.0.0.1:0"
    values["inter.broker.listener.name"] = _INTERNAL


def _shifted_ports(values: dict[str, str], number: int) -> dict[str, str]:
    """Broker `number`'s listeners (the first is 0): each port is the first broker's plus `number`."""
    shifted = {}
    for key in ("listeners", "advertised.listeners"):
        if values.get(key):
            items = []
            for item in values[key].split(","):
                address, _, port = item.strip().rpartition(":")
                if port.isascii() and port.isdigit() and int(port) > 0:
                    port = str(int(port) + number)
                items.append(f"{address}:{port}")
            shifted[key] = ",".join(items)
    return shifted
