"""A streaming job for `test_driver_killed.py`: a topic into files, one a batch, until somebody kills it.

    python spark_it/killed_job.py BOOTSTRAP TOPIC FOLDER [--die-in BATCH --when half|written]

The sink is idempotent: FOLDER/batches/N holds batch N, whoever wrote it last. With --die-in it stands still in that
batch, with half of its rows written or with all but before Spark knows of it, says so by the file FOLDER/standing and
waits for kill -9. Without, it ends when it has read all there is.
"""

import argparse
import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from spark_it import support

BATCH_SIZE = 30


def sink(folder: Path, die_in: int | None, when: str) -> Callable[[Any, int], None]:
    def stand_still() -> None:
        (folder / "standing").touch()
        threading.Event().wait()

    def write(frame: Any, batch: int) -> None:
        rows = [
            json.dumps([row.partition, row.offset, bytes(row.value).decode()])
            for row in frame.collect()
        ]
        dies = batch == die_in
        path = folder / "batches" / str(batch)
        if dies and when == "half":
            path.write_text("\n".join(rows[: len(rows) // 2]))
            stand_still()
        path.write_text("\n".join(rows))
        if dies:
            stand_still()
        with (folder / "done").open("a") as done:
            done.write(f"{batch}\n")

    return write


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("bootstrap")
    parser.add_argument("topic")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--die-in", type=int)
    parser.add_argument("--when", choices=("half", "written"), default="half")
    options = parser.parse_args()

    from kwire.spark import running_session

    support.use_fetched_jars()
    (options.folder / "batches").mkdir(exist_ok=True)
    source = {
        "kafka.bootstrap.servers": options.bootstrap,
        "subscribe": options.topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(BATCH_SIZE),
    }
    with running_session({}) as spark:
        frame = spark.readStream.format("kafka").options(**source).load()
        writer = frame.writeStream.option("checkpointLocation", str(options.folder / "checkpoint"))
        writer = writer.foreachBatch(sink(options.folder, options.die_in, options.when))
        writer.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main()
