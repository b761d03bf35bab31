"""Scenes of producers: ids and epochs, partitions added, the end in every state, fences and time-outs."""

from __future__ import annotations

from txn_scene import ADD, INIT, Scene

from kwire.protocol.schemas.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    InitProducerIdRequest,
)


def init_once_and_again(s: Scene) -> None:
    tid = s.tid()
    s.settle(tid, "describe before")
    s.init(tid)
    s.settle(tid)
    s.init(tid, "init again")
    s.init(tid, "init with another time-out", timeout_ms=5_000)
    s.settle(tid)
    s.logs(tid)


def init_with_odd_fields(s: Scene) -> None:
    for timeout_ms in (0, -1, 900_000, 900_001, 2**31 - 1):
        s.init(
            s.tid(f"timeout{timeout_ms}"), f"init with time-out {timeout_ms}", timeout_ms=timeout_ms
        )
    s.init("", "init of the empty id")
    s.init(None, "init without a transactional id")
    s.init(None, "init without a transactional id, time-out -1", timeout_ms=-1)
    for version in range(s.versions[INIT] + 1):
        s.init(s.tid(f"v{version}"), f"init, version {version}", version=version)


def init_with_an_open_transaction(s: Scene) -> None:
    tid, topic = s.tid(), s.topic()
    old = s.init(tid)
    s.begin(old, (topic, 0), (topic, 1))
    s.settle(tid, "describe")
    s.init(tid, "init while open")
    s.settle(tid)
    s.init(tid, "init again")
    s.settle(tid)
    s.fetch(topic, committed=False)
    s.fetch(topic)
    s.logs(tid)


def init_while_ending(s: Scene) -> None:
    for commit in (True, False):
        tid, topic = s.tid(str(commit)), s.held_topic(f"held-{commit}")
        who = s.init(tid)
        s.begin(who, (topic, 0))
        mine = who.but()
        s.end(who, commit)
        s.note_held(who, topic)
        s.init(tid, "init while ending")
        if s.versions[INIT] >= 3:
            s.init(
                tid, "init with id and epoch while ending", producer_id=mine.id, epoch=mine.epoch
            )
        s.release(topic)
        s.settle(tid)
        s.init(tid, "init afterwards")
        s.settle(tid)
        s.logs(tid)


def recovery(s: Scene) -> None:
    """KIP-360: a producer initialises again with the id and epoch that it had."""
    if s.versions[INIT] < 3:
        return
    tid, topic = s.tid(), s.topic()
    first = s.init(tid)
    who = {"producer_id": first.id, "epoch": first.epoch}
    s.init(tid, "with id and epoch", **who)
    s.init(tid, "the same once more, as if the answer was lost", **who)
    s.settle(tid)
    s.init(tid, "with an epoch of the future", producer_id=first.id, epoch=first.epoch + 9)
    s.init(tid, "with another id", producer_id=first.id + 1_000_000, epoch=first.epoch)
    s.init(tid, "with an id alone", producer_id=first.id)
    s.init(tid, "with an epoch alone", epoch=5)
    successor = s.init(tid, "a successor")
    s.init(tid, "with id and epoch after a successor", **who)
    s.begin(successor, (topic, 0))
    now = {"producer_id": successor.id, "epoch": successor.epoch}
    s.init(tid, "with id and epoch while open", **now)
    s.settle(tid)
    s.init(tid, "with id and epoch afterwards", **now)
    s.settle(tid)
    s.logs(tid)


def recovery_of_the_unknown(s: Scene) -> None:
    if s.versions[INIT] < 3:
        return
    known = s.init(s.tid("known"))
    tid = s.tid("unknown")
    s.init(tid, "an unknown transactional id with id and epoch", producer_id=known.id, epoch=3)
    s.settle(tid)
    s.init(None, "no transactional id, but id and epoch", producer_id=known.id, epoch=0)
    s.init(None, "no transactional id, but an epoch", epoch=0)
    s.init(None, "no transactional id, but an id", producer_id=known.id)
    s.init(s.tid("negative"), "a negative id and epoch", producer_id=-2, epoch=-2)


def init_of_two_phase_commit(s: Scene) -> None:
    """KIP-939 (version 6 of 4.x), where the broker does not allow it."""
    if not s.is_bumping or s.talker.ranges[22][1] < 6:
        return
    for two, keep in ((True, False), (False, True), (True, True)):
        request = InitProducerIdRequest(
            transactional_id=s.tid(f"{two}{keep}"),
            transaction_timeout_ms=60_000,
            enable2_pc=two,
            keep_prepared_txn=keep,
        )
        s.ask(f"init, two-phase {two}, keep prepared {keep}", 6, request)
    request = InitProducerIdRequest(transactional_id=s.tid("plain"), transaction_timeout_ms=60_000)
    s.ask("init, version 6", 6, request)


def add_partitions(s: Scene) -> None:
    topic, other = s.topic(), s.topic("other")
    who = s.init(s.tid())
    s.add(who, (topic, 0), label="add")
    s.add(who, (topic, 0), label="add the same")
    s.add(who, (topic, 1), (other, 0), label="add more")
    s.settle(who, "describe")
    s.add(who.but(epoch=who.epoch + 1), (topic, 0), label="with a later epoch")
    s.add(who.but(epoch=-1), (topic, 0), label="with epoch -1")
    s.add(who.but(id=who.id + 1_000_000), (topic, 0), label="with another id")
    s.add(who.but(tid=s.tid("nobody")), (topic, 0), label="of an unknown transactional id")
    s.add(who.but(tid=""), (topic, 0), label="of the empty transactional id")
    s.add(who, ("none", 0), label="an unknown topic")
    s.add(who, (topic, 9), label="an unknown partition")
    s.add(who, (other, 1), ("none", 0), label="a known and an unknown topic")
    s.add(who, label="nothing")
    s.settle(who, "describe")
    s.end(who, True)
    s.settle(who)
    s.add(who, (topic, 0), label="add to the next transaction")
    s.settle(who, "describe")
    s.logs(who)


def add_partitions_of_an_old_epoch(s: Scene) -> None:
    topic = s.topic()
    old = s.init(s.tid())
    new = s.init(s.tid())
    s.add(old, (topic, 0), label="add of the predecessor")
    s.add(new, (topic, 0), label="add of the successor")
    for version in range(4):
        s.add(old, (topic, 0), label=f"add of the predecessor, version {version}", version=version)
        s.add(
            new,
            (topic, version % 2),
            label=f"add of the successor, version {version}",
            version=version,
        )


def batched_add(s: Scene) -> None:
    """Versions 4 and 5: brokers add, and verify, for several producers at once."""
    if s.profile == "oldest":
        return
    topic = s.topic()
    one, two = s.init(s.tid("one")), s.init(s.tid("two"))
    s.add(one, (topic, 0))

    def wanted(who: object, verify: bool, *partitions: int, name: str = topic) -> object:
        return AddPartitionsToTxnTransaction(
            transactional_id=who.tid,
            producer_id=who.id,
            producer_epoch=who.epoch,
            verify_only=verify,
            topics=[AddPartitionsToTxnTopic(name=name, partitions=list(partitions))],
        )

    rows = {
        "verify what is there": [wanted(one, True, 0)],
        "verify what is there and what is not": [wanted(one, True, 0, 1)],
        "verify in no transaction": [wanted(two, True, 0)],
        "verify another epoch": [wanted(one.but(epoch=one.epoch + 1), True, 0)],
        "verify another id": [wanted(one.but(id=one.id + 1_000_000), True, 0)],
        "verify of nobody": [wanted(one.but(tid=s.tid("nobody")), True, 0)],
        "verify of the empty id": [wanted(one.but(tid=""), True, 0)],
        "verify an unknown topic": [wanted(one, True, 0, name="none")],
        "add for two": [wanted(one, False, 1), wanted(two, False, 0, 1)],
        "add and verify": [wanted(one, False, 1), wanted(two, True, 0)],
        "add an unknown topic": [wanted(one, False, 0, name="none"), wanted(two, False, 0)],
        "add with another epoch": [wanted(one.but(epoch=one.epoch + 1), False, 1)],
    }
    for version in (4, 5):
        for label, transactions in rows.items():
            request = AddPartitionsToTxnRequest(transactions=transactions)
            s.ask(f"{label}, version {version}", version, request)
        s.settle(one, "describe")
        s.settle(two, "describe")


def requests_while_ending(s: Scene) -> None:
    """The marker of one partition is held back, so that the transaction stays prepared."""
    topic = s.topic()
    for commit in (True, False):
        held = s.held_topic(f"held-{commit}")
        who = s.init(s.tid(str(commit)))
        s.begin(who, (topic, 0), (held, 0))
        before = who.but()
        s.end(who, commit)
        s.note_held(who, held)
        for word, asker in (("", before), ("of the next epoch, ", who)):
            if word and not s.is_bumping:
                continue
            s.add(asker, (topic, 1), label=f"{word}add while ending")
            s.add_offsets(asker, s.prefix, f"{word}add offsets while ending")
            s.produce(asker, topic, 0, label=f"{word}produce while ending", sequence=1)
            s.produce(asker, topic, 1, label=f"{word}produce elsewhere while ending", sequence=0)
            s.commit_offsets(
                asker, s.prefix, (topic, 0, 5), label=f"{word}commit offsets while ending"
            )
            s.end(asker.but(), commit, f"{word}the same end again while ending")
            s.end(asker.but(), not commit, f"{word}the opposite end while ending")
        s.note_held(who, held)
        s.release(held)
        s.settle(who)
        s.fetch(topic, committed=False)
        s.fetch(held, committed=False)
        s.logs(who)


def ends(s: Scene) -> None:
    topic = s.topic()
    for commit in (True, False):
        who = s.init(s.tid(str(commit)))
        word, other = ("commit", "abort") if commit else ("abort", "commit")
        s.end(who.but(), commit, f"{word} of nothing")
        s.begin(who, (topic, 0))
        s.end(who.but(epoch=who.epoch + 5), commit, f"{word} with a later epoch")
        s.end(who.but(epoch=-1), commit, f"{word} with epoch -1")
        s.end(who.but(id=who.id + 1_000_000), commit, f"{word} with another id")
        s.end(who.but(tid=s.tid("nobody")), commit, f"{word} of nobody")
        s.end(who.but(tid=""), commit, f"{word} of the empty id")
        before = who.but()
        s.end(who, commit, word)
        s.settle(who)
        s.end(before.but(), commit, f"{word} again")
        s.end(before.but(), not commit, f"{other} afterwards")
        s.settle(who)
        if s.is_bumping:
            s.end(who.but(), commit, f"{word} of nothing, new epoch")
            s.settle(who)
            s.end(who.but(), not commit, f"{other} of nothing, new epoch")
            s.settle(who)
        s.logs(who)


def several_transactions_in_a_row(s: Scene) -> None:
    topic = s.topic()
    who = s.init(s.tid())
    for number, commit in enumerate((True, True, False, True, False, False)):
        s.begin(who, (topic, number % 2), (topic, 1 - number % 2))
        s.end(who, commit)
        s.settle(who)
    for index in (0, 1):
        s.fetch(topic, index, committed=False)
        s.fetch(topic, index)
    s.describe_producers(topic, 0, 1)
    s.logs(who)


def fenced_by_a_successor(s: Scene) -> None:
    topic, group = s.topic(), s.prefix
    old = s.init(s.tid())
    s.begin(old, (topic, 0))
    s.init(s.tid(), "the successor while open")
    s.settle(old)
    new = s.init(s.tid(), "the successor")
    s.settle(old)
    s.add(old, (topic, 1), label="old: add")
    s.add_offsets(old, group, "old: add offsets")
    s.produce(old, topic, label="old: produce")
    s.produce(old, topic, 1, label="old: produce elsewhere")
    s.commit_offsets(old, group, (topic, 0, 5), label="old: commit offsets")
    s.end(old.but(), True, "old: commit")
    s.end(old.but(), False, "old: abort")
    s.begin(new, (topic, 0))
    s.produce(old, topic, label="old: produce while the new one has a transaction")
    s.end(new, True, "new: commit")
    s.settle(new)
    s.produce(old, topic, label="old: produce once more")
    s.fetch(topic, committed=False)
    s.fetch(topic)
    s.logs(new)


def fenced_by_an_administrator(s: Scene) -> None:
    """FenceProducers initialises the transactional id with a short time-out."""
    topic = s.topic()
    for open_one in (False, True):
        who = s.init(s.tid(str(open_one)))
        if open_one:
            s.begin(who, (topic, 0))
        s.init(s.tid(str(open_one)), "fence", timeout_ms=1)
        s.settle(who)
        s.init(s.tid(str(open_one)), "fence again", timeout_ms=1)
        s.settle(who)
        s.end(who.but(), True, "commit of the fenced one")
        s.produce(who, topic, label="produce of the fenced one")
        s.add(who, (topic, 1), label="add of the fenced one")


def timed_out(s: Scene) -> None:
    topic, group = s.topic(), s.prefix
    asks = {
        "add": lambda w: s.add(w, (topic, 1)),
        "add offsets": lambda w: s.add_offsets(w, group),
        "produce": lambda w: s.produce(w, topic),
        "produce elsewhere": lambda w: s.produce(w, topic, 1),
        "commit offsets": lambda w: s.commit_offsets(w, group, (topic, 0, 5)),
        "commit": lambda w: s.end(w.but(), True),
        "abort": lambda w: s.end(w.but(), False),
    }
    who = s.init(s.tid(), timeout_ms=1_000)
    s.begin(who, (topic, 0))
    s.until(lambda: s.state(str(who.tid)).transaction_state == "CompleteAbort")
    s.settle(who)
    for ask in asks.values():
        ask(who)
    s.settle(who)
    if s.versions[INIT] >= 3:
        s.init(s.tid(), "init with id and epoch", producer_id=who.id, epoch=who.epoch)
    new = s.init(s.tid(), "init")
    s.begin(new, (topic, 0))
    s.end(new, True)
    s.settle(new)
    s.fetch(topic, committed=False)
    s.fetch(topic)
    s.logs(new)


def timed_out_without_a_transaction(s: Scene) -> None:
    who = s.init(s.tid(), timeout_ms=1_500)
    s.pass_ms(2_500)
    s.settle(who)
    topic = s.topic()
    s.begin(who, (topic, 0))
    s.end(who, True)
    s.settle(who)
    s.pass_ms(2_500)
    s.settle(who)


def init_after_a_time_out(s: Scene) -> None:
    """The first request after the abort is InitProducerId with what the client knows."""
    if s.versions[INIT] < 3:
        return
    topic = s.topic()
    who = s.init(s.tid(), timeout_ms=1_000)
    s.begin(who, (topic, 0))
    s.until(lambda: s.state(str(who.tid)).transaction_state == "CompleteAbort")
    s.settle(who)
    new = s.init(s.tid(), "init with id and epoch", producer_id=who.id, epoch=who.epoch)
    s.init(s.tid(), "once more", producer_id=who.id, epoch=who.epoch)
    s.begin(new, (topic, 0))
    s.end(new, True)
    s.settle(who)
    s.logs(who)


def all_versions_of_a_transaction(s: Scene) -> None:
    """Each version of AddPartitionsToTxn, AddOffsetsToTxn and EndTxn that this generation knows."""
    topic, group = s.topic(), s.prefix
    who = s.init(s.tid())
    for version in range(max(s.versions[ADD], 4) + (2 if s.is_bumping else 1)):
        s.add(who, (topic, 0), label=f"add, version {min(version, 3)}", version=min(version, 3))
        s.add_offsets(who, group, f"add offsets, version {min(version, 4)}", min(version, 4))
        s.produce(who, topic)
        s.end(who, version % 2 == 0, f"end, version {version}", version)
        s.settle(who)
    s.logs(who)


SCENES = (
    init_once_and_again,
    init_with_odd_fields,
    init_with_an_open_transaction,
    init_while_ending,
    recovery,
    recovery_of_the_unknown,
    init_of_two_phase_commit,
    add_partitions,
    add_partitions_of_an_old_epoch,
    batched_add,
    requests_while_ending,
    ends,
    several_transactions_in_a_row,
    fenced_by_a_successor,
    fenced_by_an_administrator,
    timed_out,
    timed_out_without_a_transaction,
    init_after_a_time_out,
    all_versions_of_a_transaction,
)
