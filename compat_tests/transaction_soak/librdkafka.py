"""What the loops in librdkafka have in common: words on stdout, the end of stdin, and which errors mean what."""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

TIMEOUT_S = 60.0
_FENCED = (
    KafkaError._FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.FENCED_INSTANCE_ID,
    90,  # PRODUCER_FENCED
)


class LastWord(Exception):
    """What a process says before it ends: the word, then the reason."""


def settings(bootstrap: str) -> dict[str, Any]:
    """LIBRDKAFKA_DEBUG=eos,protocol has librdkafka say on stderr what it does."""
    debug = os.environ.get("LIBRDKAFKA_DEBUG")
    return {
        **({"debug": debug, "log_level": 7} if debug else {"log_level": 0}),
        "bootstrap.servers": bootstrap,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 200,
        "retry.backoff.ms": 50,
        "socket.timeout.ms": 6000,
        "topic.metadata.refresh.fast.interval.ms": 100,
    }


def say(*words: object) -> None:
    print(" ".join(map(str, words)).replace("\n", " "), flush=True)


class Transactions:
    """A transactional producer, and how its transactions end whatever its cluster does."""

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self.producer = Producer(
            {
                **settings(bootstrap),
                "transactional.id": transactional_id,
                "transaction.timeout.ms": 60_000,
                "linger.ms": 5,
            }
        )
        self.is_open = False
        """Also after an error, until it is committed or aborted."""
        self._persist(self.producer.init_transactions)

    def _persist(self, work: Callable[[float], None]) -> None:
        """Do it until it is done: librdkafka's time-outs mean that it may be called again."""
        while True:
            try:
                work(TIMEOUT_S)
                return
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
                say("error", error.args[0])

    def begin(self) -> None:
        self.producer.begin_transaction()
        self.is_open = True

    def write(self, topic: str, partition: int, value: bytes) -> None:
        """One record, acknowledged."""
        self.producer.produce(topic, value, partition=partition)
        self.producer.flush(TIMEOUT_S)

    def commit(self) -> None:
        self._persist(self.producer.commit_transaction)
        self.is_open = False

    def abort(self) -> None:
        self._persist(self.producer.abort_transaction)
        self.is_open = False


def serve(run: Callable[[threading.Event], None]) -> None:
    """The process: `run` until stdin ends, and the last word."""
    stop = threading.Event()

    def wait() -> None:
        while os.read(0, 1):  # not sys.stdin, whose lock would be in the way at the end
            pass
        stop.set()

    faulthandler.register(signal.SIGQUIT)  # as Java and Go do: all stacks
    threading.Thread(target=wait, daemon=True).start()
    try:
        run(stop)
        say("ended")
    except KafkaException as error:
        reason = error.args[0]
        is_fenced = reason.code() in _FENCED or "fenced" in reason.str()  # which may be in _FATAL
        say("fenced" if is_fenced else "failed", reason)
    except LastWord as last:
        say(*last.args)
    except Exception as error:
        say("failed", repr(error))
