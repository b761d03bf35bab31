"""Followers whose logs have left their leader's, with log starts inside batches: kwire does what Kafka 3.9.1 does.

Kafka's follower fails for good when it is told to cut its log inside a batch of its leader's and its own log does not
begin there: what the leader sends begins below its log end. That is kept: OUTCOMES is what Kafka did.
"""

from pathlib import Path

import pytest

from compat_tests.divergence import CASES, KafkaPair, KwirePair, run

RESTART = "failed; after a restart: follows"
OUTCOMES = {
    "divergent tail, leader's epoch begins at its log start": RESTART,
    "same, a batch ends at the log start": "failed",
    "same, tail ends at the log start": "failed",
    "same, tail ends inside the batch, beyond the log start": RESTART,
    "same, follower's log start is lower": RESTART,
    "first epoch unknown to the leader": RESTART,
}
"""All other cases: "follows"."""


def judge(outcomes: list[str]) -> None:
    found = {case.name: outcome for case, outcome in zip(CASES, outcomes, strict=True)}
    assert found == {case.name: OUTCOMES.get(case.name, "follows") for case in CASES}


@pytest.mark.slow
@pytest.mark.timeout(150)
@pytest.mark.kwire_only
def test_followers_with_other_logs_and_log_starts_in_batches_end_as_in_kafka(
    tmp_path: Path,
) -> None:
    pair = KwirePair(tmp_path)
    try:
        judge(run(pair, CASES, settle_s=1))
    finally:
        pair.kill()


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_kafka_still_ends_so(tmp_path: Path) -> None:
    pair = KafkaPair(tmp_path)
    try:
        judge(run(pair, CASES))
    finally:
        pair.kill()
