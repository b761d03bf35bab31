"""`kwire config`: prints the broker's keys and values, or the keys that are accepted without effect."""

from __future__ import annotations

import sys

from kwire.launch.configuration import check_security, config_values
from kwire.replication.config.broker_config import (
    OWN_KEYS,
    BrokerConfig,
    ConfigError,
    acts_on_broker_key,
)
from kwire.replication.config.given import similar_key
from kwire.replication.config.table import BROKER_KEYS
from kwire.replication.config.users import is_secret
from kwire.server.errors import SettingsError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def show_config(
    config_path: str | None, overrides: dict[str, str], keys: Sequence[str], unused: bool
) -> int:
    """Print key=value lines: of `keys`, else of all that kwire acts on, explicitly set ones first.

    Secrets are not shown. `unused`: the keys without effect instead. Given keys that Kafka does not know are named on
    stderr. SettingsError for one in `keys`."""
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
        used = sorted([*filter(acts_on_broker_key, BROKER_KEYS), *OWN_KEYS])
        shown = keys or sorted(used, key=lambda key: not config.is_set(key))
        for key in shown:
            if key not in BROKER_KEYS and key not in OWN_KEYS and not config.is_set(key):
                raise SettingsError(_unknown(key))
            text = config.text(key)
            if text and is_secret(key):
                text = "[hidden]"
            lines.append(f"{key}={'' if text is None else text}")
        for key in config.unknown_keys():
            sys.stderr.write(f"kwire config: {_unknown(key)}\n")
    if lines:
        print("\n".join(lines))  # noqa: T201
    return 0


def _unknown(key: str) -> str:
    meant = similar_key(key)
    return f"{key} is not a key of Kafka's" + (f"; did you mean {meant}?" if meant else "")
