"""Scenes over a broker's life: epochs that are used up, ids that expire, coordinators that load their log."""

from __future__ import annotations

from txn_scene import INIT, Producer, Scene

LAST = 0x7FFF - 1
"""The last epoch that a client gets; the one after it is for fences."""

# --- epochs that are used up


def init_after_the_last_epoch(s: Scene) -> None:
    tid, topic = s.tid(), s.topic()
    old = s.wear_out(tid, LAST)
    s.settle(tid, "at the last epoch")
    s.init(tid, "init after the last epoch")
    s.settle(tid)
    s.init(tid, "init again")
    s.add(old, (topic, 0), label="old: add")
    s.produce(old, topic, label="old: produce")
    s.end(old.but(), True, "old: commit")
    s.logs(tid)


def recovery_after_the_last_epoch(s: Scene) -> None:
    """KIP-360 with the last epoch: the producer gets another id, and may ask twice."""
    if s.versions[INIT] < 3:
        return
    tid = s.tid()
    worn = s.wear_out(tid, LAST - 1)
    who = {"producer_id": worn.id, "epoch": worn.epoch}
    s.init(tid, "with the epoch before the last", **who)
    s.init(tid, "the same once more, as if the answer was lost", **who)
    last = {"producer_id": worn.id, "epoch": LAST}
    s.init(tid, "with the last epoch", **last)
    s.settle(tid)
    s.init(tid, "the same once more", **last)
    s.init(tid, "with the epoch before the last, late", **who)
    s.init(tid, "a successor")
    s.init(tid, "with the last epoch after a successor", **last)
    s.settle(tid)
    s.logs(tid)


def transactions_up_to_the_last_epoch(s: Scene) -> None:
    topic = s.topic(partitions=1)
    who = s.wear_out(s.tid(), LAST - 1)
    for commit in (True, False, True, True):
        s.begin(who, (topic, 0))
        s.settle(who, "describe")
        before = who.but()
        s.end(who, commit)
        s.settle(who)
        s.end(before.but(), commit, "the same end again")
        s.end(before.but(), not commit, "the opposite end")
    s.produce(before, topic, label="produce of the epoch before")
    s.describe_producers(topic, 0)
    s.fetch(topic, committed=False)
    s.logs(who)


def an_empty_end_at_the_last_epoch(s: Scene) -> None:
    who = s.wear_out(s.tid(), LAST)
    before = who.but()
    s.end(who, True, "commit of nothing")
    s.end(who, False, "abort of nothing")
    s.settle(who)
    s.end(before.but(), False, "the same end again")
    s.end(before.but(), True, "the opposite end")
    s.logs(who)


def fenced_at_the_last_epoch(s: Scene) -> None:
    topic = s.topic()
    for word, epoch in (("last", LAST), ("before", LAST - 1)):
        who = s.wear_out(s.tid(word), epoch)
        s.begin(who, (topic, 0))
        s.init(str(who.tid), "init while open")
        s.settle(who)
        s.end(who.but(), True, "old: commit")
        s.produce(who, topic, label="old: produce")
        new = s.init(str(who.tid), "init again")
        s.settle(who)
        s.begin(new, (topic, 0))
        s.end(new, True)
        s.settle(new)
        s.describe_producers(topic, 0)
        s.logs(who)
    s.fetch(topic, committed=False)


def timed_out_at_the_last_epoch(s: Scene) -> None:
    topic = s.topic()
    worn = s.wear_out(s.tid(), LAST - 1)
    who = s.init(s.tid(), timeout_ms=1_000)
    assert who.epoch == worn.epoch + 1 == LAST
    s.begin(who, (topic, 0))
    s.until(lambda: s.state(s.tid()).transaction_state == "CompleteAbort")
    s.settle(who)
    s.end(who.but(), True, "commit")
    s.end(who.but(), False, "abort")
    s.produce(who, topic)
    if s.versions[INIT] >= 3:
        s.init(s.tid(), "init with id and epoch", producer_id=who.id, epoch=who.epoch)
    new = s.init(s.tid())
    s.begin(new, (topic, 0))
    s.end(new, True)
    s.settle(new)
    s.fetch(topic, committed=False)
    s.logs(who)


WORN = (
    init_after_the_last_epoch,
    recovery_after_the_last_epoch,
    transactions_up_to_the_last_epoch,
    an_empty_end_at_the_last_epoch,
    fenced_at_the_last_epoch,
    timed_out_at_the_last_epoch,
)

# --- ids that expire

EXPIRY_MS = 1_500
EXPIRY = {
    "transactional.id.expiration.ms": str(EXPIRY_MS),
    "transaction.remove.expired.transaction.cleanup.interval.ms": "100",
    "producer.id.expiration.ms": str(EXPIRY_MS),
    "producer.id.expiration.check.interval.ms": "100",
}
_GONE = 105
"""TRANSACTIONAL_ID_NOT_FOUND."""


def until_expired(s: Scene, tid: str) -> None:
    s.until(lambda: s.state(tid).error_code == _GONE)
    s.settle(tid, "expired")


def expired_ids(s: Scene) -> None:
    topic, group = s.topic(), s.prefix
    s.find_group(group)
    asks = {
        "add": lambda w: s.add(w, (topic, 1)),
        "add offsets": lambda w: s.add_offsets(w, group),
        "produce": lambda w: s.produce(w, topic, 1),
        "commit offsets": lambda w: s.commit_offsets(w, group, (topic, 0, 5)),
        "commit": lambda w: s.end(w.but(), True),
        "abort": lambda w: s.end(w.but(), False),
    }
    empty = s.init(s.tid("empty"))
    until_expired(s, str(empty.tid))
    for commit in (True, False):
        who = s.init(s.tid(str(commit)))
        s.begin(who, (topic, 0))
        s.end(who, commit)
        s.settle(who)
        until_expired(s, str(who.tid))
        for ask in asks.values():
            ask(who)
    s.logs(empty)
    s.logs(who)


def init_of_an_expired_id(s: Scene) -> None:
    tid, topic = s.tid(), s.topic()
    who = s.init(tid)
    s.begin(who, (topic, 0))
    s.end(who, True)
    s.settle(who)
    until_expired(s, tid)
    if s.versions[INIT] >= 3:
        s.init(tid, "init with id and epoch", producer_id=who.id, epoch=who.epoch)
        s.settle(tid)
        until_expired(s, tid)
    new = s.init(tid, "init")
    s.begin(new, (topic, 0))
    s.end(new, True)
    s.settle(new)
    s.fetch(topic, committed=False)
    s.logs(tid)


def an_open_transaction_does_not_expire(s: Scene) -> None:
    topic = s.topic(partitions=1)
    who = s.init(s.tid())
    s.begin(who, (topic, 0))
    s.pass_ms(3 * EXPIRY_MS)
    s.settle(who, "still open")
    s.describe_producers(topic, 0)
    s.produce(who, topic, label="produce on")
    s.end(who, True)
    s.settle(who)
    until_expired(s, str(who.tid))
    s.until(lambda: not s.has_producers(topic))
    s.describe_producers(topic, 0, label="of the expired producer")
    s.fetch(topic)


def use_keeps_an_id(s: Scene) -> None:
    """Each transaction puts off the expiry; the producer's state in the partition goes on its own."""
    topic = s.topic(partitions=1)
    who = s.init(s.tid())
    for _ in range(4):
        s.pass_ms(EXPIRY_MS // 2)
        s.begin(who, (topic, 0))
        s.end(who, True)
        s.settle(who)


EXPIRING = (
    expired_ids,
    init_of_an_expired_id,
    an_open_transaction_does_not_expire,
    use_keeps_an_id,
)

# --- coordinators that load their log


def loaded_with_an_open_transaction(s: Scene) -> None:
    topic, group = s.topic(), s.prefix
    s.find_group(group)
    who = s.init(s.tid())
    s.begin(who, (topic, 0))
    s.add_offsets(who, group)
    s.commit_offsets(who, group, (topic, 0, 5))
    s.settle(who, "before the restart")
    s.restart()
    s.settle(who, "after the restart")
    s.describe_producers(topic, 0)
    s.offsets(group, topic, 0)
    s.list_offsets(topic)
    s.fetch(topic)
    s.produce(who, topic, label="produce on")
    s.begin(who, (topic, 1))
    s.commit_offsets(who, group, (topic, 1, 6))
    s.end(who, True)
    s.settle(who)
    s.offsets(group, topic, 0, 1)
    s.fetch(topic)
    s.fetch(topic, 1)
    s.logs(who, group)


def loaded_and_fenced(s: Scene) -> None:
    topic = s.topic()
    who = s.init(s.tid())
    s.begin(who, (topic, 0))
    s.restart()
    s.init(s.tid(), "init while open")
    s.settle(who)
    new = s.init(s.tid(), "init again")
    s.settle(who)
    s.produce(who, topic, label="old: produce")
    s.end(who.but(), True, "old: commit")
    s.begin(new, (topic, 0))
    s.end(new, True)
    s.settle(new)
    s.fetch(topic)
    s.logs(who)


def loaded_and_timed_out(s: Scene) -> None:
    topic = s.topic()
    who = s.init(s.tid(), timeout_ms=3_000)
    s.begin(who, (topic, 0))
    s.restart()
    s.until(lambda: s.state(s.tid()).transaction_state == "CompleteAbort")
    s.settle(who)
    s.end(who.but(), True, "commit")
    s.fetch(topic)
    s.logs(who)


def loaded_while_ending(s: Scene) -> None:
    """The markers are sent again; those that are there already are written twice."""
    topics = {commit: s.topic(f"t-{commit}") for commit in (True, False)}
    held = {commit: s.held_topic(f"held-{commit}") for commit in (True, False)}
    waiting: list[tuple[bool, Producer, Producer]] = []
    for commit in (True, False):
        who = s.init(s.tid(str(commit)))
        s.begin(who, (topics[commit], 0), (held[commit], 0))
        before = who.but()
        s.end(who, commit)
        s.note_held(who, held[commit])
        waiting.append((commit, before, who))
    s.restart()
    for commit, before, who in waiting:
        s.note_held(who, held[commit])
        s.init(str(who.tid), "init while ending")
        s.end(before.but(), commit, "the same end again while ending")
        s.end(before.but(), not commit, "the opposite end while ending")
        s.release(held[commit])
        s.settle(who)
        s.end(before.but(), commit, "the same end again")
        s.fetch(held[commit], committed=False)
        s.logs(who)
        s.fetch(topics[commit], committed=False)
        s.fetch(topics[commit])


def loaded_with_nothing_open(s: Scene) -> None:
    """What the log does not keep: the last epoch of a producer that recovers (KIP-360)."""
    topic = s.topic()
    done, empty, tid = s.init(s.tid("done")), s.init(s.tid("empty")), s.tid("recovered")
    s.begin(done, (topic, 0))
    ended = done.but()
    s.end(done, True)
    s.settle(done)
    first = s.init(tid)
    who = {"producer_id": first.id, "epoch": first.epoch}
    if s.versions[INIT] >= 3:
        s.init(tid, "with id and epoch", **who)
    s.restart()
    for each in (str(done.tid), str(empty.tid), tid):
        s.settle(each, "after the restart")
    s.end(ended.but(), True, "the same end again")
    s.end(ended.but(), False, "the opposite end")
    if s.versions[INIT] >= 3:
        s.init(tid, "with id and epoch once more, as if the answer was lost", **who)
    for producer in (done, empty):
        s.begin(producer, (topic, 0))
        s.end(producer, True)
        s.settle(producer)
    s.fetch(topic)
    s.logs(done)


LOADED = (
    loaded_with_an_open_transaction,
    loaded_and_fenced,
    loaded_and_timed_out,
    loaded_while_ending,
    loaded_with_nothing_open,
)
