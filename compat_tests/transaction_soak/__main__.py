"""`python -m compat_tests.transaction_soak --minutes 5 --seed 7`."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from pathlib import Path

from compat_tests.tooling import ToolMissing
from compat_tests.transaction_soak import bank
from compat_tests.transaction_soak.run import soak
from compat_tests.transaction_soak.workers import COPIERS, copiers


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Attacks brokers and clients, and checks their transactions."
    )
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--pace", type=float, default=1.0, help="2: faults twice as often")
    parser.add_argument("--clients", default=",".join(COPIERS), help="that copy; commas between")
    parser.add_argument(
        "--owners", default=bank.LIBRDKAFKA, help="libraries that owners use in turn"
    )
    parser.add_argument("--as-version", default=None, help="3.9: transactions of version 1 only")
    parser.add_argument("--folder", type=Path, default=None, help="kept; else a temporary one")
    parser.add_argument("--quiet", action="store_true", help="only the summary")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 31)
    folder = options.folder or Path(tempfile.mkdtemp(prefix="kwire-transactions-"))
    print(f"transactions: seed {seed}, {options.minutes:g} minutes, {folder}", flush=True)
    kinds = []
    for kind in options.clients.split(","):
        try:
            copiers(kind)
            kinds.append(kind)
        except ToolMissing as missing:
            print(f"without {kind}: {missing}")
    try:
        wrong, text = soak(
            options.minutes * 60,
            seed,
            folder,
            verbose=not options.quiet,
            pace=options.pace,
            kinds=kinds,
            has_tools="java" in kinds,
            as_version=options.as_version,
            libraries=options.owners.split(","),
        )
    except AssertionError as error:
        print(f"transactions: FAILED (seed {seed}; everything is in {folder}): {error}")
        return 1
    print(text)
    for line in wrong[:50]:
        print(f"WRONG: {line}")
    if wrong:
        print(f"transactions: FAILED, {len(wrong)} faults (seed {seed}; everything is in {folder})")
        return 1
    print("transactions: each input exactly once, all money there, nothing hangs")
    if options.folder is None:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
