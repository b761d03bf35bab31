"""Broker keys of the option `fast` (`Cluster(fast=True)`, `kwire up --fast`): timers for tests.

Kafka checks retention every five minutes and refuses a session time-out below six seconds; a test
would wait for that. Each key here only makes Kafka's behaviour come sooner. None changes which
records, members or replicas are concerned: that stays with retention.ms, session.timeout.ms and
the like. Keys that are given win.

Left out although they wait, too: leader.imbalance.check.interval.seconds (leaders would move back
in the middle of a test) and controller.quorum.fetch.timeout.ms (2 s, a controller's lease).
docs/recipes.md has this table for users; tests/replication/test_fast.py compares.
"""

from __future__ import annotations

from kwire.replication.config.broker_config import ROLL_KEY

FAST = {
    # Retention: the first check, the following ones, and the files of deleted segments.
    "log.initial.task.delay.ms": "100",
    "log.retention.check.interval.ms": "100",
    "log.segment.delete.delay.ms": "100",
    # Compaction: whatever is dirty is cleaned, the active segment too.
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.min.cleanable.ratio": "0",
    ROLL_KEY: "true",
    # Groups, their offsets, and idempotent producers.
    "group.min.session.timeout.ms": "1",
    "offsets.retention.check.interval.ms": "100",
    "producer.id.expiration.check.interval.ms": "100",
    # Transactions: late ones and idle ids are looked for.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "100",
    # Brokers that hang (a killed one is noticed at once in any case). Not less: a machine that is
    # busy must not lose healthy ones.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "3000",
}
