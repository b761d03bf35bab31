"""`ssl.cipher.suites`: Java's names of cipher suites as OpenSSL's.

Python's ssl chooses among the suites of TLS 1.2 only: those of TLS 1.3 are all there, or that version is not.
"""

from __future__ import annotations

import re

TLS13 = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
_NAME = re.compile(
    r"(?:TLS|SSL)_(RSA|DHE_RSA|DHE_DSS|ECDHE_RSA|ECDHE_ECDSA)_WITH_"
    r"(?:AES_(128|256)_(GCM|CBC)|(CHACHA20_POLY1305))_(SHA(?:256|384)?)"
)


def openssl_names(suites: list[str]) -> tuple[list[str], bool, bool]:
    """OpenSSL's names of TLS 1.2's among these suites; whether there are some; and some of TLS 1.3. ValueError."""
    of_13 = [each for each in suites if each in TLS13]
    if of_13 and set(of_13) != set(TLS13):
        raise ValueError(
            f"Python's ssl has all suites of TLS 1.3 or none: name {', '.join(TLS13)}, or none of them"
        )
    names = [_openssl_name(each) for each in suites if each not in TLS13]
    return names, bool(names), bool(of_13)


def _openssl_name(suite: str) -> str:
    found = _NAME.fullmatch(suite)
    if found is None:
        raise ValueError(f"kwire has no cipher suite {suite}")
    exchange, bits, mode, chacha, digest = found.groups()
    parts = [] if exchange == "RSA" else exchange.split("_")
    if chacha:
        parts += chacha.split("_")
    else:
        parts += [f"AES{bits}", *(["GCM"] if mode == "GCM" else []), digest]
    return "-".join(parts)
