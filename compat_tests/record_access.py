"""Writes down what Apache Kafka 3.9.1 answers to access_dialogue.py: `python -m compat_tests.record_access`."""

from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path

from compat_tests import access_dialogue
from compat_tests.test_access_dialogue import ANSWERS, GuardedKafka


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        broker = GuardedKafka(Path(folder) / "kafka")
        broker.start()
        try:
            lines = [json.dumps(pair) for pair in access_dialogue.dialogue(broker.login_port)]
        finally:
            broker.stop()
    with gzip.GzipFile(ANSWERS, "wb", mtime=0) as file:
        file.write("".join(f"{line}\n" for line in lines).encode())
    print(f"{len(lines)} answers in {ANSWERS}")


if __name__ == "__main__":
    main()
