"""The certificates of a cluster that is started with `--tls`: made before its nodes, and given to each by its keys."""

from __future__ import annotations

import logging
import os

from kwire.replication.core.types import MTLS, TLS, TLS_DIRECTORY_KEY, TLS_KEY
from kwire.security.certificates import DIRECTORY, Certificates
from kwire.security.options import credentials_in
from kwire.server.events import NodeEvent
from kwire.server.log_dirs import split_dirs
from kwire.server.logs import event
from kwire.server.tls.authority import make_certificates

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    Keys = Mapping[str, str]

_log = logging.getLogger(__name__)
_OWN_KEY = ("ssl.keystore.location", "ssl.keystore.key")


def keys_of_certificates(
    values: Keys, overrides: Mapping[int, Keys], ids: range, data_dir: str, option: str | None
) -> tuple[Keys, Mapping[int, Keys]]:
    """The keys of all brokers, and of single ones, with those of certificates, which are made in the data directory; as
    they are if there is a key store, or none is asked for. `option`: how that was. SettingsError, NodeError."""
    kind = values.get(TLS_KEY)
    if kind not in (TLS, MTLS) or any(key.endswith(_OWN_KEY) for key in values):
        return values, overrides
    option = option or f"--{kind}"
    directory = values.get(TLS_DIRECTORY_KEY) or os.path.join(split_dirs(data_dir)[0], DIRECTORY)
    files = Certificates(directory, mutual=kind == MTLS)
    names = {each: _names({**values, **overrides.get(each, {})}) for each in ids}
    make_certificates(files, names, credentials_in(values, None), option)
    event(_log, NodeEvent.CERTIFICATES_MADE, directory=directory, option=option)
    more = {
        TLS_DIRECTORY_KEY: directory,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": f"{files.broker(ids[0])}.pem",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": files.ca,
    }
    own = {each: {"ssl.keystore.location": f"{files.broker(each)}.pem"} for each in ids[1:]}
    merged = {each: {**own.get(each, {}), **overrides.get(each, {})} for each in (*own, *overrides)}
    return {**values, **more}, merged


def _names(values: Keys) -> Iterable[str]:
    """Names and addresses by which clients may reach a broker: those of its listeners, and the host's."""
    from socket import gethostname

    items = f"{values['listeners']},{values.get('advertised.listeners', '')}".split(",")
    hosts = [item.partition("://")[2].rpartition(":")[0].strip("[] ") for item in items]
    return [each for each in (*hosts, gethostname()) if each not in ("", "0.0.0.0", "::")]
