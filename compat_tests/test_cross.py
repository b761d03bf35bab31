"""What one client writes with each codec, every other client reads."""

import os
from collections.abc import Callable

import pytest

from compat_tests import tooling
from compat_tests.cases import varied_records
from compat_tests.clients import ALL_CODECS, KINDS, Client, ClientKind

pytestmark = pytest.mark.timeout(180)


def at_hand(client_pool: Callable[[str], Client], kind: ClientKind) -> bool:
    """Whether the client can be had here; the others are tried without it (but not in `make test-all`)."""
    try:
        client_pool(kind.name)
    except tooling.ToolMissing:
        if os.environ.get("COMPAT_STRICT") == "1":
            raise
        return False
    return True


@pytest.mark.parametrize("codec", ALL_CODECS)
def test_every_client_reads_what_every_client_wrote(
    client_pool: Callable[[str], Client], fresh: Callable[[str], str], codec: str
) -> None:
    topic = fresh(f"cross-{codec}")
    kinds = [kind for kind in KINDS.values() if codec in kind.codecs and at_hand(client_pool, kind)]
    assert len(kinds) > 1
    client_pool(kinds[0].name).call("create", topic=topic, partitions=1, config={})

    written = []
    for kind in kinds:
        records = varied_records(kind.name, kind.headers)
        client_pool(kind.name).produce(topic, records, codec)
        written += [record.content for record in records]

    for kind in kinds:
        read = client_pool(kind.name).fetch(topic, len(written))
        assert [record.content for record in read] == written, f"{kind.name} reads something else"
