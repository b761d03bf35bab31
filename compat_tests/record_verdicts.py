"""Writes down which odd batches Apache Kafka refuses, and how: `python -m compat_tests.record_verdicts`."""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
from pathlib import Path

from compat_tests.brokers import RealKafka
from compat_tests.record_dialogue import SocketClient

ROOT = Path(__file__).parent.parent
VERDICTS = ROOT / "tests" / "data" / "kafka-3.9.1-verdicts.json.gz"


def main() -> None:
    sys.path.insert(0, str(ROOT / "tests" / "apis"))
    import odd_batches

    with tempfile.TemporaryDirectory() as folder:
        broker = RealKafka(Path(folder) / "kafka", {"broker.session.timeout.ms": "60000"})
        broker.start()
        try:
            found = odd_batches.observe(SocketClient(broker.port))
        finally:
            broker.kill9()
    VERDICTS.write_bytes(gzip.compress(json.dumps(found, separators=(",", ":")).encode(), mtime=0))
    print(f"{VERDICTS}: {VERDICTS.stat().st_size} bytes")


if __name__ == "__main__":
    main()
