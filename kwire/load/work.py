"""The threads of a load: a producer's and a reader's, each with a client of its own."""

from __future__ import annotations

from threading import Event
from time import monotonic

from kwire.load.clients import ClientError
from kwire.pipeline.ledger import ABORTED, COMMITTED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from kwire.load import ledger
    from kwire.load.clients import Receiver, Sender
    from kwire.load.plan import Plan

MAX_OPEN = 50_000
"""Records of a producer without an answer; kafka-python itself has no bound."""
LOOK_EVERY = 50
"""Records between two looks at the clock."""
TRANSACTION_SECONDS = 5.0
"""A transaction ends after so long, also with fewer records than it may have: brokers abort one after a minute."""
STOP_SECONDS = 10.0
"""How long an interrupted load waits for answers."""
STUCK_SECONDS = 15.0
"""A reader that gets nothing for so long, before the end of the topic, ends."""


class ProducerWork:
    """One producer: sends until its share is sent, its time is over, or `stop` is set; then waits for the answers."""

    def __init__(
        self, plan: Plan, number: int, producer: ledger.Producer, sender: Sender, stop: Event
    ) -> None:
        self._plan = plan
        self._producer = producer
        self._sender = sender
        self._stop = stop
        self._share = plan.share(number)
        self._keys: Sequence[bytes | None]
        self._keys = [b"key-%d" % each for each in range(plan.keys)] or [None]
        self._rate = None if plan.rate is None else plan.rate / plan.producers
        self._transaction: int | None = None
        self._begun = 0.0
        self._is_old = False
        self.failure: str | None = None
        self.transactions = dict.fromkeys((COMMITTED, ABORTED), 0)
        self.transaction_errors: list[str] = []

    def run(self) -> None:
        """Work; a client that cannot go on is `failure`."""
        try:
            self._produce()
            self._end_transaction()
        except (ClientError, OSError) as error:
            self.failure = str(error)
        finally:
            self._sender.close(STOP_SECONDS if self._stop.is_set() else self._plan.timeout + 1)
            self._producer.give_up()

    def _produce(self) -> None:
        plan, producer, send = self._plan, self._producer, self._sender.send
        topic, size, keys, count = plan.topic, plan.size, self._keys, len(self._keys)
        begin = monotonic()
        seconds = plan.wanted_seconds
        deadline = None if seconds is None else begin + seconds
        sent = 0
        due = full = (
            0  # sent records at which to look at the clock, at which to begin a transaction
        )
        while sent != self._share:
            if sent >= due:
                due = self._allowed(sent, begin, deadline)
                if due <= sent:
                    return
            if plan.is_transactional and (sent >= full or self._is_old):
                self._next_transaction()
                full = sent + plan.transaction_records
            send(
                producer.record(
                    topic, key=keys[sent % count], size=size, transaction=self._transaction
                )
            )
            sent += 1

    def _allowed(self, sent: int, begin: float, deadline: float | None) -> int:
        """Wait until another record may be sent; up to how many, before the next look. `sent`: the end."""
        while not self._stop.is_set():
            now = monotonic()
            self._is_old = now - self._begun > TRANSACTION_SECONDS
            if deadline is not None and now >= deadline:
                break
            if len(self._producer.open) >= MAX_OPEN:
                self._sender.serve(0.01)
                continue
            if self._rate is None:
                return sent + LOOK_EVERY
            allowed = int((now - begin) * self._rate) + 1
            if allowed > sent:
                return min(allowed, sent + LOOK_EVERY)
            self._sender.serve(min(0.1, max(0.0, sent / self._rate - (now - begin))))
        return sent

    def _next_transaction(self) -> None:
        self._end_transaction()
        self._sender.begin()
        self._transaction = 0 if self._transaction is None else self._transaction + 1
        self._begun, self._is_old = monotonic(), False

    def _end_transaction(self) -> None:
        number = self._transaction
        if number is None:
            return
        every = self._plan.abort_every
        commit = not every or number % every != every - 1
        outcome, error = self._sender.end(commit=commit)
        if outcome == COMMITTED:
            self._producer.committed(number)
        elif outcome == ABORTED:
            self._producer.aborted(number)
        else:
            self._producer.ended_unknown(number, error or "")
        if outcome in self.transactions:
            self.transactions[outcome] += 1
        if error is not None:
            self.transaction_errors.append(error)


class ReaderWork:
    """One reader: goes on until the producers have ended and it has reached the topic's end."""

    def __init__(self, reader: ledger.Reader, receiver: Receiver, sent: Event, stop: Event) -> None:
        """`sent`: set when the producers have ended."""
        self._reader = reader
        self._receiver = receiver
        self._sent = sent
        self._stop = stop
        self.seen = 0
        self.is_whole = False
        """Whether it has reached the end."""
        self.is_running = True
        self.failure: str | None = None

    def run(self) -> None:
        """Work; a client that cannot go on is `failure`."""
        try:
            self._read()
            self._receiver.close()
        except (ClientError, OSError) as error:
            self.failure = str(error)
        finally:
            self.is_running = False

    def _read(self) -> None:
        last = monotonic()
        is_aiming = False
        while not self.is_whole:
            if self._sent.is_set() and not is_aiming:
                self._receiver.aim()
                is_aiming, last = True, monotonic()
            count = self._receiver.receive(self._reader)
            self.seen += count
            if count:
                last = monotonic()
            self.is_whole = is_aiming and self._receiver.is_done()
            waited = monotonic() - last
            if is_aiming and waited > (1.0 if self._stop.is_set() else STUCK_SECONDS):
                return
