"""Users of SCRAM as `kafka-storage format --add-scram` of the image gives them."""

from __future__ import annotations

from pathlib import Path

import pytest
from login_kit import Guarded
from test_login import DELAY_MS, log_in

from kwire.docker import formatted
from kwire.replication.config.broker_config import BrokerConfig, ConfigError
from kwire.replication.config.users import given_scram_users
from kwire.server.errors import SettingsError


@pytest.mark.parametrize(
    ("argument", "user"),
    [
        ("SCRAM-SHA-256=[name=admin,password=s=1:2]", "SCRAM-SHA-256:admin:s=1:2"),
        ('SCRAM-SHA-512=[name="a b",iterations=8192,password="x,y"]', "SCRAM-SHA-512:a b:x,y"),
    ],
)
def test_users(argument: str, user: str) -> None:
    assert formatted.scram_user(argument) == user


@pytest.mark.parametrize(
    "argument",
    [
        "hush",
        "PLAIN=[name=admin,password=hush]",
        "SCRAM-SHA-256=[name=admin]",
        "SCRAM-SHA-256=[name=a:b,password=hush]",
        "SCRAM-SHA-256=[password=hush]",
        "SCRAM-SHA-256=[name=admin,salt=aA==,saltedpassword=hush,iterations=4096]",
    ],
)
def test_what_is_no_user_is_one_line_without_its_secret(argument: str) -> None:
    with pytest.raises(SettingsError) as refused:
        formatted.scram_user(argument)
    text = str(refused.value)
    assert text.startswith("kafka-storage --add-scram: expected ") and "\n" not in text
    assert "hush" not in text


def test_they_log_in_by_their_mechanism_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "scram"
    monkeypatch.setattr(formatted, "SCRAM_FILE", str(file))
    assert formatted.with_scram_users({"a": "b"}) == {"a": "b"}
    file.write_text("SCRAM-SHA-256=[name=carol,password=s3cret]\n")
    broker = Guarded(**formatted.with_scram_users({}))
    assert log_in(broker.client(), "SCRAM-SHA-256", "carol", "s3cret").error_code == 0
    for client, mechanism in ((broker.client(), "SCRAM-SHA-512"), (broker.client(), "PLAIN")):
        if mechanism == "PLAIN":
            client.plain("carol", "s3cret")
        else:
            log_in(client, mechanism, "carol", "s3cret")
        broker.later(DELAY_MS)
        client.received()
        assert client.closed


def test_a_key_that_is_wrong_shows_no_secret() -> None:
    with pytest.raises(ConfigError, match="expected MECHANISM:NAME:SECRET") as refused:
        given_scram_users(BrokerConfig({"node.id": "1", "kwire.scram.users": "admin:hush"}))
    assert "hush" not in str(refused.value)
