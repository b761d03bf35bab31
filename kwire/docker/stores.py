"""Key stores of a container as the variables of Kafka's images name them: files in /etc/kafka/secrets.

Corresponds to the configure scripts of apache/kafka and confluentinc/cp-kafka: `KAFKA_SSL_KEYSTORE_FILENAME` is a file
there, `…_CREDENTIALS` one with a password in it. Deliberate differences: they count for every listener that asks for
TLS, whatever its name, and a store of type PEM needs no file of credentials.
"""

from __future__ import annotations

import os

from kwire.server.errors import SettingsError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

SECRETS_DIR = "/etc/kafka/secrets"
_LOCATIONS = {
    f"KAFKA_SSL_{store}_FILENAME": f"KAFKA_SSL_{store}_LOCATION"
    for store in ("KEYSTORE", "TRUSTSTORE")
}
_PASSWORDS = {
    f"KAFKA_SSL_{secret}_CREDENTIALS": f"KAFKA_SSL_{secret}_PASSWORD"
    for secret in ("KEYSTORE", "KEY", "TRUSTSTORE")
}


def with_stores(environ: Mapping[str, str], directory: str = SECRETS_DIR) -> dict[str, str]:
    """The environment with the keys of stores in place of the names of files in `directory`; what is given by both
    stays as Kafka's key says. SettingsError with the variable when a file cannot be read; no secret is in it."""
    given = [name for name in (*_LOCATIONS, *_PASSWORDS) if name in environ]
    if not given:
        return dict(environ)
    found = {name: text for name, text in environ.items() if name not in given}
    for name in given:
        path = os.path.join(directory, environ[name])
        if name in _LOCATIONS:
            if not os.path.isfile(path):
                raise SettingsError(f"{name}={environ[name]}: there is no file {path}")
            found.setdefault(_LOCATIONS[name], path)
            continue
        try:
            with open(path, encoding="utf-8") as file:
                found.setdefault(_PASSWORDS[name], file.read().rstrip("\n"))
        except OSError as error:
            raise SettingsError(f"{name}: cannot read {path}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise SettingsError(f"{name}: {path} is not a text with a password") from None
    return found
