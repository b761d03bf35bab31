"""`kwire config`: prints the broker's keys and values, or the keys that are accepted without effect."""

from __future__ import annotations

from kwire.launch.configuration import check_security, config_values
from kwire.replication.config.broker_config import BrokerConfig, ConfigError, acts_on_broker_key
from kwire.replication.config.table import BROKER_KEYS
from kwire.server.errors import SettingsError


def show_config(config_path: str | None, overrides: dict[str, str], unused: bool) -> int:
    """Print key=value lines, explicitly set keys first; with `unused`, the keys without effect."""
    values = config_values(config_path, overrides)
    check_security(values)
    try:
        config = BrokerConfig(values)
    except ConfigError as error:
        raise SettingsError(str(error)) from None
    lines: list[str] = []
    if unused:
        given = config_path is not None or bool(overrides)
        all_unused = [key for key in BROKER_KEYS if not acts_on_broker_key(key)]
        lines += config.unused_keys() if given else all_unused
        lines += [f"{key}  # not a key of Kafka's" for key in config.unknown_keys()]
    else:
        used = sorted(key for key in BROKER_KEYS if acts_on_broker_key(key))
        for key in sorted(used, key=lambda key: not config.is_set(key)):
            text = config.text(key)
            lines.append(f"{key}={'' if text is None else text}")
    if lines:
        print("\n".join(lines))  # noqa: T201
    return 0
