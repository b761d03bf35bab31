"""Broker epochs that strangers cannot guess: a count of registrations, then a secret of the broker.

Kafka's broker epochs (KIP-380) fence requests of and for earlier incarnations; in KRaft they are
offsets of the metadata log, small numbers. Without authentication a client on the brokers' listener
could give a broker orders with such a number, or speak to the controller in a broker's name. Here
the last nine digits come from the incarnation id (128 random bits), which only the broker and its
controllers know: a request with an epoch of the broker comes from one of them. Every epoch is
larger than all before it, as in Kafka.
"""

from __future__ import annotations

from typing import Final

SECRETS: Final = 10**9
"""An epoch is a count times this, plus the secret."""


def _secret(incarnation: bytes) -> int:
    number = int.from_bytes(incarnation, "big")
    return number and 1 + number % (SECRETS - 1)


def next_broker_epoch(last_epoch: int, incarnation: bytes) -> int:
    """The epoch after `last_epoch`, the largest so far, for a broker with this incarnation id.

    Without an id, for a broker that gets no requests of a controller over the network, one more."""
    secret = _secret(incarnation)
    return (last_epoch // SECRETS + 1) * SECRETS + secret if secret else last_epoch + 1


def is_epoch_of(incarnation: bytes, epoch: int) -> bool:
    """Whether a controller gave `epoch` to the broker with this incarnation id, now or before."""
    return epoch >= 0 and epoch % SECRETS == _secret(incarnation)


def registration_number(epoch: int) -> int:
    """The epoch as logs show it: without the secret."""
    return epoch // SECRETS or epoch
