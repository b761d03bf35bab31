"""A `kwire-log` whose task stands still in the middle, so that a test can kill the worker that has it.

The first task that reads the log of a partition says by FOLDER/standing where it runs, and goes on when FOLDER/go is
there; a task that runs again, or later, does not wait."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kwire.pipeline import source
from kwire.pipeline.source import KafkaLog, LogReader, Part
from spark_it import support


def register(session: Any, folder: str, partition: int) -> None:
    """Put it into the place of a session's `kwire-log`."""
    source.register(session)
    session.dataSource.register(waiting(folder, partition))


def waiting(folder: str, partition: int) -> type[KafkaLog]:
    """A class of its own: it goes to workers by value, which need not have this module."""
    patience_s = support.PATIENCE_S

    class WaitingReader(LogReader):  # type: ignore[misc]
        def read(self, part: Part) -> Iterator[Any]:
            for table in LogReader.read(self, part):
                yield table.slice(0, 1)
                if part.range.where.partition == partition:
                    self._wait()
                yield table.slice(1)

        def _wait(self) -> None:
            try:
                with Path(folder, "standing").open("x") as file:
                    file.write(str(Path.cwd()))  # below the worker's folder
            except FileExistsError:
                return
            deadline = time.monotonic() + patience_s
            while not Path(folder, "go").exists() and time.monotonic() < deadline:
                time.sleep(0.05)

    class WaitingLog(KafkaLog):  # type: ignore[misc]
        def reader(self, schema: Any) -> LogReader:
            found = KafkaLog.reader(self, schema)
            return WaitingReader(found._names, found._options)

    return WaitingLog
