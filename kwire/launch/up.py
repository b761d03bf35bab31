"""Runs `kwire up` from its spec to the exit status: a standalone broker as one node in this process.

Several brokers are run by `up_cluster.py`. Exit status: 0 after SIGINT or SIGTERM with data flushed,
1 for a failure at run time (`NodeError`), 2 for a refused configuration (`SettingsError`). Each
failure is one line; nothing here prints a traceback.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
from contextlib import suppress

from kwire.launch.configuration import asks_who, warn_about_keys
from kwire.launch.node_runner import NodeRunner
from kwire.launch.process import (
    remove,
    stop_on_signals,
    write_ready_file,
    write_ready_line,
)
from kwire.launch.spec import PROCESS
from kwire.replication.core.types import MTLS, TLS_DIRECTORY_KEY, TLS_KEY
from kwire.server import logs
from kwire.server.descriptors import raise_limit
from kwire.server.errors import NodeError, SettingsError
from kwire.server.events import NodeEvent
from kwire.server.listeners import format_address
from kwire.server.log_dirs import split_dirs
from kwire.server.logs import event
from kwire.server.node import new_event_loop, settle_garbage_collector

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from kwire.broker import Broker
    from kwire.control.routes import Handler
    from kwire.control.socket import ControlSocket
    from kwire.controller_node import ControllerNode
    from kwire.launch.registry import Registration
    from kwire.launch.spec import ClusterSpec, NodeSpec
    from kwire.launch.supervisor import Supervisor
    from kwire.server.temporary import TemporaryDirectory
    from kwire.snapshots.saved import Snapshot

    MakeControl = Callable[[Supervisor | NodeRunner], Handler]
    OpenControl = Callable[[NodeRunner], Awaitable[ControlSocket]]

_log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
# As listeners.py and the system say it.
_TAKEN = ("the port is taken by another process", "ddress already in use")


class Surroundings:
    """The additions of `kwire up` and of a container to the nodes: topics, control API, ready line."""

    __slots__ = (
        "announce",
        "control_host",
        "control_port",
        "health_file",
        "log_path",
        "make_control",
        "open_control",
        "opens_page",
        "print_failure",
        "ready_file",
        "registration",
        "topic_configs",
        "topics",
        "written",
    )

    def __init__(
        self,
        *,
        topics: Sequence[tuple[str, int, int]] = (),
        topic_configs: Mapping[str, Mapping[str, str]] | None = None,
        ready_file: str | None = None,
        announce: Callable[[str], None] | None = None,
        log_path: str | None = None,
        health_file: str | None = None,
        control_host: str | None = None,
        control_port: int | None = None,
        make_control: MakeControl | None = None,
        open_control: OpenControl | None = None,
        print_failure: Callable[[int, str], int] | None = None,
        written: Mapping[str, str] | None = None,
        opens_page: bool = False,
    ) -> None:
        """`topics`: name, partitions, replication (-1: default). `announce` is called with the ready line when the
        nodes are ready; None: print it on stdout. `log_path`: where the log goes, for the registry; None: to
        stderr. `health_file`: of a container (health.py). `opens_page`: in a browser, when the nodes are ready.
        `control_host`, `control_port`: where the control API listens. Host None: on this machine only; port None:
        an ephemeral port. `make_control(running)`: make its handler, for a supervisor or the runner of a standalone
        broker. `open_control`: open the control API of a container's broker instead. `print_failure(status, line)`:
        prints the line of a failure, and returns the exit status. `written`: configuration keys as they were
        written where that is not their name (a container's variables)."""
        self.topics = topics
        self.topic_configs = topic_configs or {}
        self.ready_file = ready_file
        self.announce = announce
        self.log_path = log_path
        self.health_file = health_file
        self.control_host = control_host
        self.control_port = control_port
        self.make_control = make_control
        self.open_control = open_control
        self.print_failure = print_failure or _print_failure
        self.written = written
        self.opens_page = opens_page
        self.registration: Registration | None = None
        """This process's entry in the registry of running clusters."""


def run_up(make_spec: Callable[[], ClusterSpec], surroundings: Surroundings) -> int:
    """Run until a signal; return the exit status. A failure has printed its line by then.

    `make_spec()` may raise SettingsError and NodeError."""
    gc.disable()  # until the start is over: start-up objects live on, a collection frees nothing
    try:
        _remove_files(surroundings)  # an earlier run's would announce the wrong node
        spec = make_spec()
        if spec.is_standalone:
            if spec.isolation == PROCESS:
                event(_log, NodeEvent.ISOLATION_WITHOUT_EFFECT)
            main = _run_standalone(spec, surroundings)
        else:
            from kwire.launch.up_cluster import run_cluster

            main = run_cluster(spec, surroundings)
        raise_limit()
        loop = new_event_loop()
        try:
            _begin_registration(surroundings)
            loop.run_until_complete(main)
            _print_stopped()
        finally:
            loop.close()
            _remove_files(surroundings)
            if surroundings.registration is not None:
                surroundings.registration.remove()
    except SettingsError as error:
        return surroundings.print_failure(2, str(error))
    except NodeError as error:
        return surroundings.print_failure(1, _with_way_out(str(error), surroundings))
    except Exception as error:
        _log.debug("internal error", exc_info=error)
        text = f"internal error: {type(error).__name__}: {error}"
        return surroundings.print_failure(
            1, f"{text} (please report it; --log-level debug shows where)"
        )
    return 0


def _print_stopped() -> None:
    """Say at a terminal that it has stopped: the lines of the nodes are left out there."""
    terminal = logs.terminal()
    if terminal is not None:
        terminal.write_lines(["\rstopped"])  # over the ^C


async def _run_standalone(cluster: ClusterSpec, surroundings: Surroundings) -> None:
    """Run a standalone broker until a signal. SettingsError, NodeError."""
    stopping = stop_on_signals()
    folder = None
    if TLS_KEY in cluster.node.values:
        folder, cluster = prepare_tls(cluster, surroundings.written)
    try:
        await _run_node(cluster.node, surroundings, stopping, folder, cluster.snapshot)
    finally:
        if folder is not None:
            folder.remove()


async def _run_node(
    spec: NodeSpec,
    surroundings: Surroundings,
    stopping: asyncio.Future[str | None],
    folder: TemporaryDirectory | None,
    snapshot: Snapshot | None,
) -> None:
    loop = asyncio.get_running_loop()
    runner = NodeRunner(spec)
    loop.add_signal_handler(signal.SIGUSR1, lambda: runner.latest.log_status())
    warn_about_keys(runner.config, surroundings.written)

    def on_halted(why: str) -> None:
        if not stopping.done():
            stopping.set_result(why)

    runner.on_loaded = lambda core: _create_topics(core, surroundings)
    runner.on_halted = on_halted
    if folder is None and spec.temporary:
        folder = make_temporary(spec.data_dir)
    try:
        if snapshot is not None or not spec.temporary:
            from kwire.snapshots.tree import has_restore

            dirs = split_dirs(spec.data_dir)
            if snapshot is not None or any(map(has_restore, dirs)):
                from kwire.snapshots.restoring import begin_with

                begin_with(spec.data_dir, snapshot)
        await runner.start()
        try:
            await _serve_standalone(runner, surroundings, stopping)
        finally:
            await runner.latest.stop(last=True)
    finally:
        if folder is not None:
            folder.remove()


async def _serve_standalone(
    runner: NodeRunner, surroundings: Surroundings, stopping: asyncio.Future[str | None]
) -> None:
    control = await _open_control(runner, surroundings)
    try:
        at = format_address(*runner.address)
        url = None if control is None else control.url
        place = None if control is None else control.place
        runner.node.connection_log.control_url = place and place.replace("0.0.0.0", "localhost")
        announce(surroundings, runner.spec, runner.advertised, at, url, runner.spec)
        settle_garbage_collector()
        halted = await stopping
        logs.set_quiet(True)
        if halted is not None:
            raise NodeError(halted)
    finally:
        if control is not None:
            await control.close()


async def _open_control(runner: NodeRunner, surroundings: Surroundings) -> ControlSocket | None:
    """Open the control API: a bound socket, served when the first connection comes. NodeError."""
    if surroundings.open_control is not None:
        return await surroundings.open_control(runner)
    make_control = surroundings.make_control
    if make_control is None:
        return None
    from kwire.control.socket import ControlSocket

    control = ControlSocket(lambda: make_control(runner), lambda: runner.advertised, ("kwire.aio",))
    host, port = surroundings.control_host or LOOPBACK, surroundings.control_port or 0
    await control.open(host, port, is_locked=asks_who(runner.spec.values))
    return control


def _create_topics(core: Broker | ControllerNode, surroundings: Surroundings) -> None:
    if not surroundings.topics:
        return
    from kwire.launch.initial_topics import check_created, create_request

    controller = core.services.controller
    assert controller is not None
    request = create_request(surroundings.topics, surroundings.topic_configs)
    check_created(controller.handle(request, 7))  # type: ignore[arg-type]  # a CreateTopicsResponse
    while core.work.jobs:  # the topics are there when the broker is ready
        core.work.turn()


def make_temporary(path: str) -> TemporaryDirectory:
    """Make a temporary data directory. NodeError when that fails."""
    from kwire.server.temporary import TemporaryDirectory

    try:
        return TemporaryDirectory(path)
    except OSError as error:
        raise NodeError(f"temporary directory {path}: {error.strerror}") from None


def prepare_tls(
    spec: ClusterSpec, written: Mapping[str, str] | None
) -> tuple[TemporaryDirectory | None, ClusterSpec]:
    """Make the certificates of a cluster, in its temporary directory if it has one. SettingsError, NodeError."""
    folder = make_temporary(spec.node.data_dir) if spec.node.temporary else None
    try:
        return folder, spec.with_certificates((written or {}).get(TLS_KEY))
    except BaseException:
        if folder is not None:
            folder.remove()
        raise


def _remove_files(surroundings: Surroundings) -> None:
    """Remove the ready file and the health file."""
    if surroundings.ready_file is not None:
        remove(surroundings.ready_file)
    if surroundings.health_file is not None:
        from kwire.launch.health import remove_health_file

        remove_health_file(surroundings.health_file)


def announce(
    surroundings: Surroundings,
    spec: NodeSpec,
    bootstrap: str,
    addresses: str,
    control: str | None,
    broker: NodeSpec,
) -> None:
    """Write the health file, the ready file, the registry's entry and the ready line. NodeError when
    it fails.

    `addresses`: of the brokers, as this machine reaches them, with commas between. `control`: the URL
    of the control API, if there is one. `spec`: what all nodes were given; `broker`: what one of them was."""
    tls = spec.values.get(TLS_DIRECTORY_KEY)
    if surroundings.health_file is not None:
        from kwire.launch.health import asks_tls, write_health_file

        is_tls = asks_tls(broker.configuration())
        write_health_file(surroundings.health_file, addresses, is_tls=is_tls)
    if surroundings.ready_file is not None:
        write_ready_file(surroundings.ready_file, bootstrap, control, tls)
    _register(surroundings, spec, bootstrap, addresses, control)
    more = "" if control is None else f" control={control}"
    more += "" if tls is None else f" tls={tls}"
    write = surroundings.announce or write_ready_line
    write(f"ready bootstrap={bootstrap}{more}")
    logs.set_quiet(False)
    terminal = logs.terminal()
    if terminal is not None and surroundings.announce is None:
        from kwire.launch.welcome import welcome

        terminal.write_lines(welcome(spec, bootstrap, control))
    if surroundings.opens_page and control is not None:
        from kwire.launch.welcome import open_page

        open_page(control)


def _begin_registration(surroundings: Surroundings) -> None:
    """Register this process as starting, so that `kwire down` finds it. A failure is logged later."""
    from kwire.launch.registry import RegistryError, begin

    with suppress(RegistryError):
        surroundings.registration = begin()


def _register(
    surroundings: Surroundings, spec: NodeSpec, bootstrap: str, addresses: str, control: str | None
) -> None:
    from time import time

    from kwire import __version__
    from kwire.launch.registry import RegistryError, begin

    try:
        registration = surroundings.registration or begin()
        surroundings.registration = registration
        registration.fill(
            {
                "version": __version__,
                "ready_ms": int(time() * 1000),
                "bootstrap": bootstrap,
                "addresses": addresses,
                "control": control,
                "data_dir": spec.data_dir,
                "temporary": spec.temporary,
                "log": surroundings.log_path,
                "tls": spec.values.get(TLS_DIRECTORY_KEY),
                "mutual": spec.values.get(TLS_KEY) == MTLS,
            }
        )
    except RegistryError as error:
        event(_log, NodeEvent.NOT_REGISTERED, detail=str(error))


def _with_way_out(line: str, surroundings: Surroundings) -> str:
    """A failure's line; of a taken port, one that names the `kwire up` that holds it, and the option
    for another port."""
    if "cannot listen on" not in line:
        return line
    from kwire.launch.running import holder_text

    text = holder_text(line) or line
    if surroundings.print_failure is not _print_failure or not line.endswith(_TAKEN):
        return text  # a container has no such options
    option = "--control-port" if line.startswith("control API") else "--port"
    return f"{text}; another port: {option}"


def _print_failure(status: int, line: str) -> int:
    sys.stderr.write("kwire up: " + line.replace("\n", " ") + "\n")
    return status
