"""Clients of all languages at locked doors: who comes in, and by which error the others are refused.

The kinds of error are those of docs/security-clients.md, beside kwire and (REAL=1) Apache Kafka 3.9.1 with equal keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from compat_tests.locks.brokers import locked_broker
from compat_tests.locks.cases import CASES, COLUMNS, SHORT, documented, expected
from compat_tests.locks.probes import PROBES, Probe

pytestmark = pytest.mark.timeout(180)

SHORT_CLIENTS = [
    name for name in PROBES if name not in ("kafka-python-2", "java 2.8.2", "java 4.3.1")
]
TOOL_CASES = (*SHORT, "plain", "other-host", "expired", "wrong-plain", "not-enabled")
"""The console tools start a Java or three for each: they try some."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    broker = locked_broker(tmp_path_factory.mktemp("locks"))
    yield broker
    broker.stop()


@pytest.fixture(scope="module")
def probe() -> Iterator[Callable[[str], Probe]]:
    """The client of a name, started when it is first asked for."""
    started: dict[str, Probe] = {}

    def get(name: str) -> Probe:
        if name not in started:
            started[name] = PROBES[name]()
        return started[name]

    yield get
    for each in started.values():
        each.close()


def pairs() -> Iterator[Any]:
    for client in PROBES:
        is_tool = client.startswith("console tools")
        for case in CASES:
            if is_tool and case not in TOOL_CASES:
                continue
            is_short = case in SHORT and client in SHORT_CLIENTS and not is_tool
            marks = () if is_short else (pytest.mark.slow,)
            yield pytest.param(client, case, marks=marks, id=f"{client}-{case}".replace(" ", "-"))


@pytest.mark.parametrize(("client", "name"), list(pairs()))
def test_a_client_comes_in_or_shows_its_error(
    broker: Any, probe: Callable[[str], Probe], client: str, name: str
) -> None:
    case = CASES[name]
    value = f"{client}-{name}".replace(" ", "-")
    found = probe(client).attempt(case.attempt(broker.ports[case.listener], value))
    assert found.kind in expected(client, case), found


def test_the_page_knows_all_clients() -> None:
    assert set(documented()) == {(client, column) for client in PROBES for column in COLUMNS}
