"""Changes of a broker's keys while it runs: which ones it takes.

Answers to kafka.server.DynamicBrokerConfig.validate. What the checks need is imported with the first change.
"""

from __future__ import annotations

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.replication.config.broker_config import (
    BrokerConfig,
    ConfigError,
    broker_key,
    parse_value,
)
from kwire.replication.core.types import STORE_KEYS, THROTTLES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_THROTTLE = ("LONG", None, "[0,...]", "MEDIUM", "cluster-wide")


def check_at_run_time(
    config: BrokerConfig, values: Mapping[str, str | None], *, per_broker: bool, replaces: bool
) -> None:
    """KafkaError(INVALID_REQUEST) for keys that cannot change at run time, that ask for protection that kwire does not
    have, whose values exclude each other, or that name key stores that cannot be used. None: the value goes.

    `per_broker`: these are the broker's own. `replaces`: keys that are not among them go, too."""
    rows = {name: broker_key(name) for name in values}
    _refuse(
        "Cannot update these configs dynamically:",
        (name for name, row in rows.items() if row and row[4] == "read-only"),
    )
    _refuse(
        "These security configs can be dynamically updated only per-listener using the listener prefix:",
        (name for name in rows if name in STORE_KEYS),
    )
    from kwire.replication.config.cross_checks import check_dynamic
    from kwire.replication.config.given import problem_at_run_time

    for name, row in rows.items():
        if (problem := problem_at_run_time(name, values[name])) is not None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(problem))
        if name in THROTTLES:
            row = _THROTTLE
        if row is not None and values[name] is not None:
            try:
                parse_value(name, row, values[name])
            except ConfigError as error:
                raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None
    if not per_broker:
        _refuse(
            "Cannot update these configs at default cluster level, broker id must be specified:",
            (name for name, row in rows.items() if row and row[4] == "per-broker"),
        )
    check_dynamic(config, values, own=per_broker, replaces=replaces)


def _refuse(why: str, names: Iterable[str]) -> None:
    """KafkaError for these keys, if there are any."""
    found = ", ".join(sorted(names))
    if found:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{why} Set({found})")
