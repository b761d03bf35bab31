"""An audit for `test_audit_killed.py` that stands still where it is told to, until somebody kills it or its worker.

    python spark_it/killed_audit.py LEDGER OUT RECORDS_OF_A_PART [--logs DIR …] [--die-at STEP]
    spark-submit … spark_it/killed_audit.py LEDGER OUT RECORDS_OF_A_PART [--logs DIR …] --meet FOLDER --at PARTITION

With --die-at it creates OUT/../standing when the step of that name begins, and waits for kill -9. With --meet the first
task that reads this partition's log says by FOLDER/standing where it runs, and goes on when FOLDER/go is there.
"""

import argparse
import os
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
    parser.add_argument("--meet")
    parser.add_argument("--at", type=int, default=1)
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
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    with session.running_session(None if is_submitted else "local[2]") as spark:
        if options.meet:
            from spark_it import waiting_log

            waiting_log.register(spark, options.meet, options.at)
        runs.run(spark, plan, options.out, say)


if __name__ == "__main__":
    main()
