"""What `kafka-storage format` of the image was told, for a directory that the broker makes when it starts.

Answers to kafka.tools.StorageTool: the cluster id, and `--add-scram MECHANISM=[name=…,password=…]`. Left out: salts and
salted passwords of one's own; iterations are those of kwire.
"""

from __future__ import annotations

import os
import re

from kwire.replication.core.scram_credentials import NUMBERS
from kwire.replication.core.types import SCRAM_USERS_KEY
from kwire.server.errors import SettingsError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

CLUSTER_ID_FILE = "/tmp/kwire-cluster-id"
SCRAM_FILE = "/tmp/kwire-scram"
_IDENTITIES = ("meta.properties", "controller/meta.properties")  # a broker's, a cluster's
_USER = re.compile(r"(?P<mechanism>[^=]*)=\[(?P<items>.*)\]")
_ITEM = re.compile(r'\s*(?P<key>[a-z]+)=(?:"(?P<quoted>[^"]*)"|(?P<plain>[^,"]*))\s*(?:,|$)')


def is_made(data_dir: str) -> bool:
    """Whether a data directory is there already: what is said of its making has no effect."""
    from kwire.server.log_dirs import split_dirs

    return any(
        os.path.exists(os.path.join(d, i)) for d in split_dirs(data_dir) for i in _IDENTITIES
    )


def cluster_id() -> str | None:
    """The cluster id that was given; None: none was."""
    return (_read(CLUSTER_ID_FILE) or "").strip() or None


def with_scram_users(values: Mapping[str, str]) -> dict[str, str]:
    """The keys with the users of SCRAM that were given. SettingsError, in which no secret is."""
    lines = (_read(SCRAM_FILE) or "").splitlines()
    if not lines:
        return dict(values)
    return {**values, SCRAM_USERS_KEY: "\n".join(map(scram_user, lines))}


def scram_user(argument: str) -> str:
    """MECHANISM:NAME:SECRET of an argument of --add-scram. SettingsError, in which no secret is."""
    found = _USER.fullmatch(argument.strip())
    mechanism = found["mechanism"].strip() if found else ""
    items = (
        {
            each["key"]: each["quoted"] or each["plain"] or ""
            for each in _ITEM.finditer(found["items"])
        }
        if found
        else {}
    )
    name, secret = items.get("name"), items.get("password")
    if mechanism not in NUMBERS or not name or not secret or ":" in name:
        known = " or ".join(NUMBERS)
        raise SettingsError(
            f"kafka-storage --add-scram: expected {known}=[name=NAME,password=PASSWORD]"
        )
    return f"{mechanism}:{name}:{secret}"


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError):
        return None
