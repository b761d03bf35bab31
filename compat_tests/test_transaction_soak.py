"""The soak of transactions, short; and that its checks can fail."""

import random
from pathlib import Path
from types import SimpleNamespace

import pytest

from compat_tests.clients import ClientError
from compat_tests.tooling import ToolMissing
from compat_tests.transaction_soak import bank, driven, run
from compat_tests.transaction_soak.bank import Bank, Half
from compat_tests.transaction_soak.copies import (
    Copy,
    contradicted,
    copies_of,
    not_exactly_once,
    torn,
    written_late,
)
from compat_tests.transaction_soak.librdkafka import LastWord
from compat_tests.transaction_soak.workers import COPIERS, copiers

pytestmark = pytest.mark.kwire_only

INPUTS = [(0, 0), (0, 1), (1, 0)]
EPOCHS = dict.fromkeys(range(bank.PARTITIONS), 7)
FIRST, SECOND = ("java-0", 1, 1), ("java-0", 1, 2)


def copies() -> list[Copy]:
    """All inputs, in two transactions."""
    return [Copy(0, 0, FIRST, 2), Copy(0, 1, FIRST, 2), Copy(1, 0, SECOND, 1)]


def test_copies_of_all_inputs_are_accepted() -> None:
    values = [b"0 0 java-0 1 1 2", b"0 1 java-0 1 1 2", b"1 0 java-0 1 2 1"]
    log = {0: list(enumerate(values))}
    assert copies_of(log) == copies()
    assert not_exactly_once(INPUTS, copies()) == torn(copies()) == []
    assert contradicted(copies(), [FIRST, SECOND], [("java-0", 1, 5)]) == []
    assert written_late("copies-java", log) == []


def test_an_input_that_is_copied_never_or_twice_is_told() -> None:
    assert not_exactly_once(INPUTS, copies()[1:]) == ["NOT COPIED: input (0, 0)"]
    again = [*copies(), Copy(1, 0, FIRST, 1)]
    assert not_exactly_once(INPUTS, again) == [f"TWICE: input (1, 0) by {[SECOND, FIRST]}"]
    assert not_exactly_once(INPUTS[:2], copies()) == ["copied input (1, 0) is none"]


def test_a_transaction_that_is_visible_in_part_is_told() -> None:
    assert torn(copies()[1:]) == [f"TORN: of transaction {FIRST} 1 of 2 records are visible"]


def test_a_transaction_that_ended_otherwise_than_its_client_knows_is_told() -> None:
    lost = ("java-1", 2, 3)
    assert contradicted(copies(), [lost], [FIRST]) == [
        f"LOST: {lost}, whose commit was acknowledged",
        f"ABORTED, and yet visible: {FIRST}",
    ]


@pytest.mark.parametrize(
    "values",
    [(b"0 1 java-0 2 1 1", b"0 0 java-0 1 9 1"), (b"owner-0 2 9 0 1 1", b"owner-0 1 9 0 1 1")],
)
def test_a_record_after_those_of_a_successor_is_told(values: tuple[bytes, bytes]) -> None:
    (wrong,) = written_late("t", {3: list(enumerate(values))})
    assert wrong.startswith("LATE: t-3 at 1: process 1 of ")


def transfer(number: int, amount: int, *balances: int, incarnation: int = 1) -> list[Half]:
    """Of owner-0, from account 0 to account 1."""
    return [
        Half("owner-0", incarnation, number, account, (-amount, amount)[account], balances[account])
        for account in range(2)
    ]


def read(accounts: Bank, *halves: Half) -> None:
    for half in halves:
        assert Half.decode(half.encode()) == half
        accounts.read(bank.partition_of(half.owner, half.account), half.encode())


def test_whole_transfers_are_accepted() -> None:
    accounts = Bank()
    read(accounts, *transfer(1, 10, 90, 110), *transfer(2, 5, 85, 115))
    accounts.snapshot(EPOCHS)
    accounts.snapshot(EPOCHS)
    assert accounts.end({"owner-0": 2, "owner-1": 0}) == []


def test_the_newest_transfer_may_be_on_its_way_and_no_other() -> None:
    accounts = Bank()
    first, second = transfer(1, 10, 90, 110), transfer(2, 5, 85, 115)
    read(accounts, first[0])
    accounts.snapshot(EPOCHS)
    read(accounts, second[0])
    accounts.snapshot(
        EPOCHS
    )  # the other half of 1 may not have been visible when this one was taken
    read(accounts, first[1])
    accounts.snapshot(EPOCHS)
    assert accounts.wrong == []


@pytest.mark.parametrize(("epoch", "told"), [(7, True), (8, False)])
def test_a_transfer_before_the_newest_is_whole_unless_a_deposed_leader_hides_it(
    epoch: int, told: bool
) -> None:
    accounts = Bank()
    first, second = transfer(1, 10, 90, 110), transfer(2, 5, 85, 115)
    read(accounts, first[0], second[0])
    accounts.snapshot(EPOCHS)
    accounts.snapshot(EPOCHS)
    read(accounts, first[1], second[1])
    accounts.snapshot(EPOCHS | {1: epoch})
    assert accounts.restored("owner-0") == []
    assert [line.split(" although")[0] for line in accounts.wrong] == (
        [f"snapshot 3: {first[1]} was missing"] if told else []
    )


def test_half_a_transfer_in_the_end_is_told() -> None:
    accounts = Bank()
    read(accounts, transfer(1, 10, 90, 110)[0])
    (wrong,) = accounts.end({"owner-0": 0})
    assert wrong.startswith("owner-0 was fenced, and yet there is half a transfer")


def test_a_transfer_that_was_acknowledged_and_is_not_there_is_told() -> None:
    accounts = Bank()
    read(accounts, *transfer(1, 10, 90, 110))
    assert accounts.end({"owner-0": 2}) == ["LOST: owner-0 committed transfer 2, 1 is the newest"]


def test_money_from_nowhere_is_told() -> None:
    accounts = Bank()
    giving, taking = transfer(1, 10, 90, 110)
    read(accounts, giving, Half("owner-0", 1, 1, 1, 11, 111))
    accounts.snapshot(EPOCHS)
    assert [line.split(":")[0] for line in accounts.wrong] == [
        f"{giving} and {Half('owner-0', 1, 1, 1, 11, 111)} are no transfer".split(":")[0],
        "snapshot 1",
    ]
    assert accounts.restored("owner-0") == ["owner-0 has 201 in 2 accounts"]
    assert taking.balance == 110


@pytest.mark.parametrize(
    "halves",
    [
        [*transfer(1, 10, 90, 110), *transfer(1, 10, 80, 120)],  # twice
        [*transfer(2, 10, 90, 110), *transfer(1, 10, 80, 120)],  # backwards
        [*transfer(1, 10, 80, 110)],  # of another history
    ],
)
def test_a_history_that_cannot_be_is_told(halves: list[Half]) -> None:
    accounts = Bank()
    read(accounts, *halves)
    assert accounts.wrong


def test_a_missing_transfer_is_told() -> None:
    accounts = Bank()
    read(accounts, *transfer(2, 10, 90, 110))
    assert accounts.restored("owner-0") == ["owner-0: 1 transfers, the newest is 2"]


def test_an_abandoned_transaction_must_not_be_visible() -> None:
    accounts = Bank()
    accounts.read(0, b"abandoned 3")
    assert accounts.wrong == ["abandoned 3 is visible, which nobody has committed"]


@pytest.mark.parametrize("kind", COPIERS)
def test_the_client_is_there(kind: str) -> None:
    copiers(kind)  # ToolMissing skips, with the reason


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (
            "org.apache.kafka.common.errors.ProducerFencedException: There is a newer producer",
            "fenced",
        ),
        ("INVALID_PRODUCER_EPOCH: Producer attempted an operation with an old epoch.", "fenced"),
        ("[Error 47] InvalidProducerEpochError", "fenced"),
        ("no answer in 60.0 s", "lost"),
    ],
)
def test_an_owner_whose_library_fails_says_whether_it_is_fenced(
    monkeypatch: pytest.MonkeyPatch, text: str, word: str
) -> None:
    class Failing:
        def call(self, said: str, **_: object) -> None:
            if said == "txn_end":
                raise ClientError(text)

    kind = SimpleNamespace(start=lambda _: Failing())
    monkeypatch.setitem(driven.KNOWN, "failing", kind)  # type: ignore[arg-type]
    owner = driven.Driven("failing", "", "owner-0")
    owner.write(bank.TOPIC, 0, b"half")
    with pytest.raises(LastWord) as last:
        owner.commit()
    assert last.value.args[0] == word


def available() -> list[str]:
    kinds = []
    for kind in COPIERS:
        try:
            copiers(kind)
            kinds.append(kind)
        except ToolMissing:
            pass  # told by test_the_client_is_there
    return kinds


@pytest.mark.timeout(240)
def test_transactions_survive_a_short_attack(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 31)
    libraries = (bank.LIBRDKAFKA, "kafka-python-3")
    wrong, summary = run.soak(
        10, seed, tmp_path, kinds=available(), has_tools=False, libraries=libraries
    )
    assert wrong == [], summary
    assert all(fault in summary for fault in run.WORST), summary


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("version", [None, "3.9"])
def test_transactions_survive_five_minutes_of_attack(tmp_path: Path, version: str | None) -> None:
    seed = random.SystemRandom().randrange(1 << 31)
    kinds = available()
    has_tools = "java" in kinds
    libraries = [bank.LIBRDKAFKA, "kafka-python-3"]
    libraries += [name for kind, name in (("java", "java"), ("franz", "franz-go")) if kind in kinds]
    wrong, summary = run.soak(
        300,
        seed,
        tmp_path,
        kinds=kinds,
        has_tools=has_tools,
        as_version=version,
        libraries=libraries,
    )
    print(summary)
    assert wrong == [], summary
