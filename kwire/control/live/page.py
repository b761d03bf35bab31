"""The page at `/` of a cluster's control API, and the stream that it lives on (`hub.py`).

The page is one file, page.html with the style sheet of reports in it, which fetches nothing from elsewhere. It holds
nothing of the cluster, so it is served without the token: it asks for that, and shows it with each of its requests.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from kwire.control.errors import ControlError
from kwire.control.live.answers import EVENT_STREAM, HTML, Stream, Text
from kwire.control.live.hub import MAX_PAGES, hub_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kwire.aio import Cluster
    from kwire.control.live.answers import Headers

_SCRIPT = re.compile(rb"<script>(.*?)</script>", re.DOTALL)
_STYLE = re.compile(rb"<style>(.*?)</style>", re.DOTALL)


async def live(cluster: Cluster) -> dict[str, Any]:
    """What the page shows: nodes, partitions, replicas, groups, transactions, requests, faults, events."""
    return await hub_of(cluster).once()


async def stream(cluster: Cluster, _: Headers) -> Stream:
    """The same, then what changes, as it changes."""
    hub = hub_of(cluster)
    if hub.pages >= MAX_PAGES:
        raise ControlError(503, f"{MAX_PAGES} pages are open, no more are served")
    return Stream(EVENT_STREAM, hub.parts())


@cache
def page() -> Text:
    """The page, for browsers."""
    from kwire.report.page import common_style

    body = (Path(__file__).parent / "page.html").read_bytes()
    body = body.replace(b"@STYLE@", common_style().encode(), 1)
    policy = (
        f"default-src 'none'; script-src {_hashes(_SCRIPT, body)}; style-src {_hashes(_STYLE, body)};"
        " connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none';"
        " require-trusted-types-for 'script'; trusted-types 'none'"
    )
    headers = {
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-store",
    }
    return Text(f"{HTML}; charset=utf-8", body, tuple(headers.items()))


def _hashes(pattern: re.Pattern[bytes], body: bytes) -> str:
    """The sources of a policy that allow what stands in the page, and nothing else."""
    from base64 import b64encode
    from hashlib import sha256

    digests = (sha256(found).digest() for found in pattern.findall(body))
    return " ".join(f"'sha256-{b64encode(each).decode()}'" for each in digests)
