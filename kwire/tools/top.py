"""`kwire top`: what goes on in a cluster, once a second: nodes, topics, groups with lag, transactions, requests.

Topics, groups and open transactions are asked for over Kafka's protocol, so that any Kafka will do; nodes and
requests by the control API where there is one. What does not answer is a line of the screen, not an end of it.
"""

from __future__ import annotations

import shutil
import sys
import time

from kwire.client.admin import NoBrokerError
from kwire.client.groups import describe_group, list_groups
from kwire.client.transactions import list_transactions
from kwire.control.client import call
from kwire.control.ctl import node_lines, request_lines
from kwire.control.errors import ControlError
from kwire.protocol.errors import KafkaError
from kwire.tools.groups import GROUP_HEAD, group_row
from kwire.tools.kafka import connected, table
from kwire.tools.topics import PARTITION_HEAD, partition_row, partition_states
from kwire.tools.transactions import TRANSACTION_HEAD, transaction_row

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from kwire.client.blocking import Client
    from kwire.tools.kafka import Target

_ANSWER_SECONDS = 1.0
_GROUPS_SHOWN = 20
_PARTITIONS_SHOWN = 20
_REQUESTS_SHOWN = 20
_TRANSACTIONS_SHOWN = 20
_HOME, _END_OF_LINE, _END_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"


def top(target: Target, seconds: float, *, once: bool) -> int:
    """Print the state of a cluster every `seconds`, on a terminal in place, or once."""
    on_terminal = sys.stdout.isatty() and not once
    if on_terminal:
        sys.stdout.write(_HOME + _END_OF_SCREEN)
    with connected(target, "kwire-admin", _ANSWER_SECONDS) as client:
        if target.guessed:
            client.run(client.metadata())
        screen = Screen(client, target)
        while True:
            lines = screen.lines()
            if on_terminal:
                sys.stdout.write(_in_place(lines))
            else:
                sys.stdout.write("\n".join(lines) + "\n")
            sys.stdout.flush()
            if once:
                return 0
            time.sleep(seconds)


def _in_place(lines: list[str]) -> str:
    width, height = shutil.get_terminal_size()
    if len(lines) > height - 1:
        lines = [*lines[: height - 2], f"… {len(lines) - height + 2} more lines"]
    shown = "".join(f"{line[:width]}{_END_OF_LINE}\n" for line in lines)
    return f"{_HOME}{shown}{_END_OF_SCREEN}"


class Screen:
    """The lines of one screen after the other; rates are between two of them."""

    def __init__(self, client: Client, target: Target) -> None:
        self._client = client
        self._target = target
        self._ends: dict[
            str, int
        ] = {}  # of each topic, the sum of its end offsets at the last screen
        self._at = 0.0

    def lines(self) -> list[str]:
        """The state now."""
        where = ",".join(f"{host}:{port}" for host, port in self._target.addresses)
        lines = [f"kwire top  {where}  {time.strftime('%H:%M:%S')}", ""]
        sections = (self._nodes, self._topics, self._groups, self._transactions, self._requests)
        for section in sections:
            found = section()
            if found and found != lines[-1 - len(found) : -1]:  # the same failure again
                lines += [*found, ""]
        return lines

    def _asked(self, work: Callable[[], list[str]]) -> list[str]:
        try:
            return work()
        except (NoBrokerError, KafkaError, ControlError) as error:
            return [str(error)]

    def _nodes(self) -> list[str]:
        control = self._target.control
        if control is None:
            return self._asked(self._brokers)
        return self._asked(lambda: node_lines(self._control("/v1/cluster")))

    def _control(self, path: str) -> Any:
        assert self._target.control is not None
        return call(self._target.control, "GET", path, seconds=_ANSWER_SECONDS)

    def _brokers(self) -> list[str]:
        brokers = self._client.run(self._client.metadata()).brokers
        return [f"broker {each.node_id} {each.host}:{each.port}" for each in brokers]

    def _topics(self) -> list[str]:
        return self._asked(self._of_partitions)

    def _of_partitions(self) -> list[str]:
        states = self._client.run(partition_states(self._client, None, True))
        own = [each for each in states if not each["topic"].startswith("__")]
        rows = self._rates(own)
        lines = table(("TOPIC", "PARTITIONS", "RECORDS", "PER SECOND"), rows).splitlines()
        bad = [row for row in map(partition_row, states) if row[-1]]
        if bad:
            shown = table(PARTITION_HEAD, bad[:_PARTITIONS_SHOWN]).splitlines()
            more = [f"… {len(bad) - _PARTITIONS_SHOWN} more"] if len(bad) > len(shown) - 1 else []
            lines += ["", *shown, *more]
        return lines if rows or bad else ["no topics"]

    def _rates(self, states: list[dict[str, Any]]) -> list[tuple[object, ...]]:
        """A row for each topic: partitions, records that it holds, records a second."""
        now = time.monotonic()
        ends: dict[str, int] = {}
        held: dict[str, int] = {}
        counts: dict[str, int] = {}
        for each in states:
            name, end = each["topic"], each["end"] or 0
            ends[name] = ends.get(name, 0) + end
            held[name] = held.get(name, 0) + end - (each["start"] or 0)
            counts[name] = counts.get(name, 0) + 1
        before, passed = self._ends, now - self._at
        self._ends, self._at = ends, now
        return [
            (
                name,
                counts[name],
                held[name],
                round(max(0, end - before[name]) / passed) if name in before else None,
            )
            for name, end in ends.items()
        ]

    def _groups(self) -> list[str]:
        def found() -> list[str]:
            client = self._client
            names = list(client.run(list_groups(client, 0)))
            groups = [client.run(describe_group(client, name, 0)) for name in names[:_GROUPS_SHOWN]]
            if not groups:
                return []
            groups.sort(key=lambda group: -(group.known_lag or 0))
            more = len(names) - len(groups)
            lines = table(GROUP_HEAD, [group_row(group) for group in groups]).splitlines()
            return [*lines, f"… {more} more"] if more else lines

        return self._asked(found)

    def _transactions(self) -> list[str]:
        """The open transactions, which hold back readers of read_committed, oldest first."""

        def found() -> list[str]:
            known = self._client.run(list_transactions(self._client))
            held = sorted(
                (each for each in known if each.open), key=lambda each: each.start_ms or 0
            )
            if not held:
                return []
            rows = [transaction_row(each) for each in held[:_TRANSACTIONS_SHOWN]]
            more = len(held) - len(rows)
            lines = table(TRANSACTION_HEAD, rows).splitlines()
            return [*lines, f"… {more} more"] if more else lines

        return self._asked(found)

    def _requests(self) -> list[str]:
        if self._target.control is None:
            return []
        try:
            found = self._control("/v1/requests")["requests"]
        except ControlError:  # they are not kept, or the nodes' section has said it
            return []
        return ["last requests:", *request_lines(found)[-_REQUESTS_SHOWN:]] if found else []
