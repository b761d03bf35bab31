"""Writes docs/scenarios.md: which tests show which scenario of the replication design.

A test shows scenario 46 when its name begins with test_S46_ (test_S46_S50_ shows both). What a scenario says is in the
design; REMARKS says what of it is not shown, and why. Run from the project's root; tests/test_scenarios.py fails when
the page is out of date.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "scenarios.md"
FOLDERS = ("tests", "compat_tests")

NAMES = [
    "cache-assign",
    "cache-lookup",
    "cache-trim-end",
    "cache-trim-start",
    "assign-on-election",
    "recordless-epoch-trimmed",
    "log-truncate-HW",
    "checkpoint-restores-HW",
    "retention-stops-at-HW",
    "dirty-restart",
    "tail-lost-below-LS",
    "divergence-table",
    "divergence-after-LS",
    "failed-read-leaves-state",
    "epoch-fencing",
    "unknown-follower",
    "consumer-at-follower",
    "bounds",
    "two-round-HW",
    "long-poll-and-leader-change",
    "long-poll-and-stop",
    "interleaved-epochs",
    "diverge-without-data",
    "keep-acked-tail",
    "no-silent-divergence",
    "unclean-short-leader",
    "out-of-range-low",
    "out-of-range-high",
    "list-offsets-race",
    "repeated-unclean",
    "epoch-request-path",
    "fall-back-to-HW",
    "truncate-before-HW",
    "straddling-batch",
    "fenced",
    "leader-behind",
    "corrupt-once",
    "one-bad-partition",
    "stale-answer",
    "same-LE-repeat",
    "session",
    "link-loss",
    "fetcher-map",
    "HW-lowered",
    "LS-propagates",
    "caught-up-rule",
    "idle-at-end",
    "expand",
    "epoch-start-rule",
    "shrink",
    "min-isr-holds-HW",
    "joiner-blocks-HW",
    "failed-update",
    "pending-vs-LeaderAndIsr",
    "ineligible",
    "acks-all",
    "idempotent-retry-over-failover",
    "new-leader-low-HW",
    "isolation",
    "timestamps",
    "delete-records",
    "rack",
    "leader-and-isr-epochs",
    "leader-and-isr-members",
    "unknown-leader",
    "re-elected-same-leader",
    "stop-matrix",
    "bounce-fencing",
    "metadata",
    "clean-failover",
    "isr-order",
    "follower-dies",
    "last-isr-dies",
    "unclean-on",
    "unclean-off",
    "elect-api",
    "controlled-shutdown",
    "create-degraded",
    "epochs-through-bounces",
    "rf1-bounces",
    "reassign",
    "reassign-cancel-replace",
    "alter-partition-matrix",
    "controller-failover",
    "zombie-leader",
    "delete-and-recreate",
    "dir-failure",
    "last-standing",
]

REMARKS = {
    19: "A follower that idles hears of a new high watermark after 5 ms, so that records may take the news along.",
    54: "A newer proposal takes the place of one that is queued, where Kafka refuses it (55).",
    87: "A test may also let one partition fail alone (PartitionFault): the others of its directory go on.",
}


def scenario_numbers(test_name: str) -> list[int]:
    """test_S46_S50_… → [46, 50]."""
    match = re.match(r"test((?:_[sS]\d+)+)_", test_name)
    return [] if match is None else [int(n) for n in re.findall(r"\d+", match[1])]


def tests_by_scenario() -> dict[int, list[str]]:
    """Scenario → tests as "file::name", in the order of files and lines."""
    found: dict[int, list[str]] = {}
    for path, name in _tests():
        for number in scenario_numbers(name):
            found.setdefault(number, []).append(f"{path}::{name}")
    return found


def _tests() -> Iterator[tuple[str, str]]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("test_*.py")):
            if "node_modules" in path.parts or ".build" in path.parts:
                continue
            for name in re.findall(r"^ *def (test_[sS]\d\w*)", path.read_text(), re.MULTILINE):
                yield path.relative_to(ROOT).as_posix(), name


def page() -> str:
    """The page as it should be."""
    lines = [
        "# Replication scenarios and the tests that show them",
        "",
        "Written by `python tools/scenarios.py` from the names of the tests. A scenario is a given, a when and a then",
        "of the replication design; several tests may show one, and one test several. What is in",
        "compat_tests/test_cluster_scenarios.py and compat_tests/test_controller_scenarios.py runs twice: in plaintext, and with",
        "SASL_SSL and access rules between all nodes.",
        "",
        "| | scenario | tests | remark |",
        "|---|---|---|---|",
    ]
    found = tests_by_scenario()
    for number, name in enumerate(NAMES, 1):
        by_file: dict[str, list[str]] = {}
        for test in found.get(number, []):
            file, _, function = test.partition("::")
            by_file.setdefault(file, []).append(function)
        tests = "<br>".join(
            f"{file}: {', '.join(functions)}" for file, functions in by_file.items()
        )
        lines.append(f"| S{number} | {name} | {tests or 'none yet'} | {REMARKS.get(number, '')} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
