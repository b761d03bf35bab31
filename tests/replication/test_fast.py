"""The option `fast`: its keys exist, act, are earlier than Kafka's, and stand in docs/recipes.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kwire.launch.spec import NodeSpec
from kwire.replication.config.broker_config import (
    OWN_KEYS,
    BrokerConfig,
    ConfigError,
    acts_on_broker_key,
)
from kwire.replication.config.fast import FAST
from kwire.replication.config.table import BROKER_KEYS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "recipes.md"


@pytest.mark.parametrize("key", FAST)
def test_a_fast_key_acts_and_is_below_kafkas_default(key: str) -> None:
    if key in OWN_KEYS:
        assert (OWN_KEYS[key][1], FAST[key]) == ("false", "true")
        return
    assert acts_on_broker_key(key)
    assert 0 <= float(FAST[key]) < float(BROKER_KEYS[key][1] or "")


def test_the_page_lists_the_keys_with_kafkas_defaults() -> None:
    rows = re.findall(r"^\| `([\w.]+)` \| (\S+) \| (\S+) \|", PAGE.read_text(), re.MULTILINE)
    defaults = {key: OWN_KEYS[key][1] if key in OWN_KEYS else BROKER_KEYS[key][1] for key in FAST}
    assert rows == [(key, defaults[key], text) for key, text in FAST.items()]


def test_fast_is_below_the_keys_that_are_given() -> None:
    spec = NodeSpec(node_id=1, fast=True, data_dir="/d", values={"log.cleaner.backoff.ms": "7"})
    config = BrokerConfig(spec.configuration())
    assert config.log_cleaner_backoff_ms == 7
    assert config.log_retention_check_interval_ms == 100
    assert config.unknown_keys() == []
    slow = BrokerConfig(spec.replace(fast=False).configuration())
    assert slow.log_retention_check_interval_ms == 300_000


def test_kwires_own_flags_are_checked() -> None:
    key = "kwire.log.cleaner.roll.active"
    assert not BrokerConfig().own_flag(key)
    assert BrokerConfig({key: "True"}).own_flag(key)
    with pytest.raises(ConfigError, match="either true or false"):
        BrokerConfig({key: "often"})
