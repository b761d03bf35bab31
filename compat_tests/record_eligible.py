"""What Kafka's controller does with eligible leaders (KIP-966); `python -m compat_tests.record_eligible` asks it anew.

java/EligibleLeaders.java asks Kafka 4.3.1's own PartitionChangeBuilder. (3.9.1's has the same rules but one: it elects
a last known leader that is dead.) `tests/replication/controller/test_eligible_leaders.py` holds kwire's controller
against it.
"""

import gzip
import subprocess
from pathlib import Path

from compat_tests import tooling

KAFKA = "4.3.1"
RECORDED = Path(__file__).parent.parent / "tests" / "data" / f"eligible-leaders-{KAFKA}.txt.gz"
SEED, PARTITIONS = 1, 200


def ask_kafka() -> str:
    """One line an event."""
    classes = tooling.java_program(tooling.HERE / "java" / "EligibleLeaders.java", KAFKA)
    argv = tooling.java_argv(KAFKA, "EligibleLeaders", str(SEED), str(PARTITIONS))
    argv[argv.index("-cp") + 1] = classes
    done = subprocess.run(argv, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout


def main() -> None:
    said = ask_kafka()
    RECORDED.write_bytes(gzip.compress(said.encode(), mtime=0))
    print(f"{len(said.splitlines())} lines in {RECORDED}")


if __name__ == "__main__":
    main()
