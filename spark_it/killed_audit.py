"""An audit for `test_audit_killed.py` that stands still where it is told to, until somebody kills it.

    python spark_it/killed_audit.py LEDGER OUT RECORDS_OF_A_PART [--logs DIR …] [--die-at STEP]

With --die-at it creates OUT/../standing when the step of that name begins, and waits for kill -9.
"""

import argparse
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from spark_it import support


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("ledger", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("records_of_a_part", type=int)
    parser.add_argument("--logs", action="append", default=[])
    parser.add_argument("--die-at")
    options = parser.parse_args()

    from kwire.audit import runs, session

    support.use_fetched_jars()
    request = runs.Request(str(options.ledger), tuple(options.logs), None, ())

    def say(words: str) -> None:
        sys.stderr.write(f"{words}\n")
        if words == options.die_at:
            (options.out.parent / "standing").touch()
            threading.Event().wait()

    options.out.mkdir(exist_ok=True)
    plan = runs.planned(request, options.out, options.records_of_a_part)
    with session.running_session("local[2]") as spark:
        runs.run(spark, plan, options.out, say)


if __name__ == "__main__":
    main()
