"""Where kwire's answers in the scenes of transactions differ from Kafka's, each with the reason.

A difference is a line "NUMBER LABEL .PATH: Kafka …, kwire …"; the pattern is searched in it."""

from __future__ import annotations

import re
from typing import NamedTuple


class Known(NamedTuple):
    """`release` and `scene` are prefixes."""

    release: str
    scene: str
    pattern: str
    reason: str

    def covers(self, release: str, scene: str, difference: str) -> bool:
        return (
            release.startswith(self.release)
            and scene.startswith(self.scene)
            and re.search(self.pattern, difference) is not None
        )


KNOWN: tuple[Known, ...] = (
    Known(
        "",
        "loaded_",
        r"leader_epoch: Kafka \d, kwire 2"
        r"|(records|rows)\[0\]\[1\]: Kafka \"0{11}[\da-f]\", kwire \"0{11}[02]\"",
        "the epochs of leaders and coordinators that were restarted",
    ),
    Known("", "", r"error_message: Kafka null, kwire \"", "kwire says why"),
    Known("", "", r"__consumer_offsets .*base_sequence: Kafka 0, kwire -1", "no producer id there"),
    Known("4", "", r"__consumer_offsets .*value.version: Kafka 4, kwire 3", "3.9 reads it, too"),
    Known("4", "", r"__consumer_offsets .*topic_id: Kafka \"ID\"", "of version 4 of the value"),
    Known(
        "3.9",
        "produce_of_a_later_epoch",
        r"^\d+ (a later epoch|describe producers|the epoch before|fetch)",
        "3.9 verifies nothing once the partition has an open transaction of the producer",
    ),
    Known(
        "3.9",
        "offsets_of_another_producer",
        r"^\d+ (after: |commit offsets|fetch offsets)",
        "3.9 verifies nothing once the partition has an open transaction of the producer",
    ),
    Known(
        "3.9",
        "",
        r"^\d+ (old: produce while|produce of the earlier epoch) .*log_start_offset: Kafka 0, kwire -1",
        "3.9 refuses it in the log, kwire, as 4.3, while it verifies",
    ),
    Known("", "odd_markers", r"of epoch -1 .*error_code: Kafka -1, kwire 47", "no such epoch"),
    Known(
        "4",
        "delete_records_of_an_open_transaction",
        r"(latest offset, read_committed|fetch from 3, read_committed) .*: Kafka 2, kwire 3",
        "4.3's last stable offset is below the start of the log then: the base of the batch that holds the"
        " start; kwire's is the start, as 3.9's",
    ),
)
