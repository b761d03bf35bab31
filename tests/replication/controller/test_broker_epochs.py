"""Broker epochs: they rise, the broker knows its own, nobody guesses them, and logs do not tell them."""

from __future__ import annotations

from random import Random

import pytest

from kwire.replication.core.broker_epochs import (
    SECRETS,
    is_epoch_of,
    next_broker_epoch,
    registration_number,
)


def test_epochs_rise_and_each_broker_knows_its_own() -> None:
    rng, last = Random(1), 7
    incarnations = [rng.randbytes(16) for _ in range(5)]
    for number in range(50):
        incarnation = rng.choice(incarnations)
        epoch = next_broker_epoch(last, incarnation)
        assert epoch > last and registration_number(epoch) == number + 1
        assert [other for other in incarnations if is_epoch_of(other, epoch)] == [incarnation]
        last = epoch


@pytest.mark.parametrize("epoch", [-1, 0, 1, 7, 10**9, 2**62])
def test_small_and_round_numbers_are_no_epochs(epoch: int) -> None:
    rng = Random(2)
    assert not any(is_epoch_of(rng.randbytes(16), epoch) for _ in range(100))


def test_without_an_incarnation_id_they_count() -> None:
    assert next_broker_epoch(7, b"") == 8 == next_broker_epoch(7, bytes(16))
    assert registration_number(8) == 8


def test_no_epoch_is_that_of_no_broker() -> None:
    """-1 leaves the largest remainder, which a secret may be."""
    incarnation = (SECRETS - 2).to_bytes(16, "big")
    assert next_broker_epoch(0, incarnation) % SECRETS == SECRETS - 1 == -1 % SECRETS
    assert not is_epoch_of(incarnation, -1)
