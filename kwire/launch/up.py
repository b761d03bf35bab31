"""What `kwire up` does once its options are read: from configuration to exit status. One process, one node; several
brokers are in `cluster.py`.

Exit status: 0 after SIGINT or SIGTERM with data flushed, 1 for a failure at run time (`NodeError`), 2 for a
configuration that is refused (`SettingsError`). Each failure is one line; nothing here prints a traceback.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys

from kwire.launch.parts import configured, endpoints, warn_unknown_keys
from kwire.launch.settings import UpSettings, config_values, data_dir_of
from kwire.server import logs
from kwire.server.errors import NodeError, SettingsError
from kwire.server.node import new_event_loop, settle_garbage_collector

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio

    from kwire.broker import Broker
    from kwire.server.log_dirs import LogDirs
    from kwire.server.temporary import TemporaryDirectory

_log = logging.getLogger(__name__)


class _Process:
    """One run of `kwire up`."""

    def __init__(self, settings: UpSettings) -> None:
        self.settings = settings
        values = config_values(settings)
        self.data_dir, self.temporary = data_dir_of(settings, values)
        values["log.dirs"] = self.data_dir
        values.pop("log.dir", None)
        self.folder: TemporaryDirectory | None = None
        self.dirs: LogDirs | None = None
        self.halted: str | None = None
        self.config, self.node, self.caps = configured(values, settings.as_version)
        warn_unknown_keys(self.config)

    def run(self) -> None:
        self.node.bind()
        loop = new_event_loop()
        try:
            if self.temporary:
                self.folder = made_temporary(self.data_dir)
            loop.run_until_complete(self._main(loop))
        finally:
            self.node.close_sockets()
            loop.close()
            if self.dirs is not None:
                self.dirs.close()
            self._clean_up()

    async def _main(self, loop: asyncio.AbstractEventLoop) -> None:
        import asyncio

        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, on_signal, stop)
        broker = self._start_broker(stop)
        await self.node.serve(broker)
        control = None
        if self.settings.open_control is not None:
            control = await self.settings.open_control(self.node, broker)

        def on_status_signal() -> None:
            from kwire.control.status import snapshot_of_broker, tell

            tell(self.config.node_id, snapshot_of_broker(broker))

        loop.add_signal_handler(signal.SIGUSR1, on_status_signal)
        self._announce()
        settle_garbage_collector()
        await stop.wait()
        if control is not None:
            await control.close()
        if self.halted is not None:
            self.node.kill()
            raise NodeError(self.halted)
        await self.node.stop()

    def _start_broker(self, stop: asyncio.Event) -> Broker:
        """Everything that can fail because of the data directory, with one line for each way to fail."""
        from random import Random

        from kwire.broker import Broker
        from kwire.protocol.errors import KafkaError
        from kwire.replication.controller.state import JournalError
        from kwire.server.log_dirs import LogDirs, disk_space, load_error, split_dirs

        node, config = self.node, self.config

        def halt(why: str) -> None:
            self.halted = why
            stop.set()

        if not self.temporary:
            from kwire.launch.shape import check_alone

            check_alone(split_dirs(self.data_dir))
        try:
            # What is thrown away at exit need not survive a power cut.
            self.dirs = LogDirs(self.data_dir, fsync=not self.temporary)
            broker = Broker(
                config,
                self.dirs.opened,
                node.clock,
                node.outbox,
                Random(int.from_bytes(os.urandom(8), "big")),
                disk_space=disk_space,
                api_caps=self.caps,
                cluster_id=self.settings.cluster_id,
                on_halt=halt,
            )
            if self.settings.recent_requests:
                from kwire.recent import RecentRequests

                broker.sessions.recent = RecentRequests(node.clock, broker.services.metadata)
            broker.start(endpoints(node))
        except (OSError, JournalError, KafkaError) as error:
            raise load_error(self.data_dir, error) from None
        finally:
            node.write_events()
        logs.event(
            _log,
            logging.INFO,
            "log directory loaded",
            log_dir=self.data_dir,
            cluster_id=broker.services.cluster_id,
            node_id=config.node_id,
            logs=len(list(broker.services.log_manager.logs())),
        )
        self._create_topics(broker)
        return broker

    def _create_topics(self, broker: Broker) -> None:
        if not self.settings.topics:
            return
        from kwire.launch.initial_topics import check_created, create_request

        controller = broker.services.controller
        assert controller is not None
        request = create_request(self.settings.topics, self.settings.topic_configs)
        check_created(controller.handle(request, 7))  # type: ignore[arg-type]  # a CreateTopicsResponse

    def _announce(self) -> None:
        announce(self.settings, self.node.bootstrap_servers)

    def _clean_up(self) -> None:
        if self.settings.ready_file is not None:
            remove(self.settings.ready_file)
        if self.folder is not None:
            self.folder.remove()


def made_temporary(path: str) -> TemporaryDirectory:
    """NodeError when it cannot be made."""
    from kwire.server.temporary import TemporaryDirectory

    try:
        return TemporaryDirectory(path)
    except OSError as error:
        raise NodeError(f"temporary directory {path}: {error.strerror}") from None


def on_signal(stop: asyncio.Event) -> None:
    """SIGINT or SIGTERM: a clean stop."""
    if stop.is_set():
        os._exit(1)  # a second signal: the user does not want to wait for the first
    stop.set()


def announce(settings: UpSettings, bootstrap: str, control: str | None = None) -> None:
    """Tells everybody who shall know that brokers are ready. NodeError when somebody cannot be told.

    `control`: the URL of the control API, if there is one."""
    if settings.ready_file is not None:
        write_ready_file(settings.ready_file, bootstrap, control)
    if settings.announce is not None:
        settings.announce(bootstrap)
        return
    try:
        if sys.stdout is None:  # Python's way to say that it was closed from the start
            raise BrokenPipeError
        more = "" if control is None else f" control={control}"
        sys.stdout.write(f"ready bootstrap={bootstrap}{more}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        raise NodeError("nobody reads the ready line: stdout is closed") from None
    except OSError as error:
        raise NodeError(f"cannot write the ready line to stdout: {error.strerror}") from None


def write_ready_file(path: str, bootstrap: str, control: str | None) -> None:
    """Atomically: a reader sees the whole file or none."""
    import json

    text = json.dumps({"bootstrap": bootstrap, "control": control, "pid": os.getpid()})
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text + "\n")
        os.replace(temporary, path)
    except OSError as error:
        remove(temporary)
        raise NodeError(f"cannot write the ready file {path}: {error.strerror}") from None


def remove(path: str) -> None:
    """Deletes a file, if it is there."""
    try:
        os.unlink(path)
    except OSError:
        return


def run_up(settings: UpSettings) -> int:
    """Runs until a signal; returns the exit status and has printed its line when that is not 0."""
    gc.disable()  # until the start is over: nothing it makes is garbage
    logs.configure(settings.log_level, settings.log_json)
    try:
        if settings.ready_file is not None:
            remove(settings.ready_file)  # of an earlier run: nobody shall wait for the wrong node
        if settings.brokers > 1 or settings.controllers > 1 or settings.control_port is not None:
            from kwire.launch.up_cluster import run_cluster

            run_cluster(settings)
        else:
            _Process(settings).run()
    except SettingsError as error:
        return _say(2, str(error))
    except NodeError as error:
        return _say(1, str(error))
    except Exception as error:
        _log.debug("internal error", exc_info=error)
        text = f"internal error: {type(error).__name__}: {error}"
        return _say(1, f"{text} (please report it; --log-level debug shows where)")
    return 0


def _say(status: int, line: str) -> int:
    sys.stderr.write("kwire up: " + line.replace("\n", " ") + "\n")
    return status
