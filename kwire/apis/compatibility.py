"""Generates docs/compatibility.md: the served API versions beside those of Kafka 3.9 and 4.4.

`python -m kwire.apis.compatibility > docs/compatibility.md`; a test fails when the page is out of
date.
"""

from __future__ import annotations

import sys

from kwire.apis import BY_KEY
from kwire.apis.releases import release_ranges
from kwire.protocol.api import ApiKey

_HEAD = """# Compatibility

Made from the table of APIs (`kwire/apis/__init__.py`) by `python -m kwire.apis.compatibility`; do not edit.

kwire serves the union of what Apache Kafka 3.9 and 4.4 serve, as far as it goes: clients from 0.11 to 4.4 connect.
`kwire up --as-version 2.8` cuts the ranges to those of a release; configuration keys and
their defaults are then those of Kafka 3.9 or, from 4.0 on, of 4.3. A dash: the API is not there.

| key | API | kwire | Kafka 3.9 | Kafka 4.4 |
|---:|---|---|---|---|
"""


def _range_text(versions: tuple[int, int] | None) -> str:
    if versions is None:
        return "–"
    lowest, highest = versions
    return str(lowest) if lowest == highest else f"{lowest}-{highest}"


def compatibility_page() -> str:
    """The whole page, in Markdown."""
    old, new = release_ranges("3.9"), release_ranges("4.4")
    rows = []
    for key in ApiKey:
        served = BY_KEY.get(key)
        ours = None if served is None else (served.min_version, served.max_version)
        if ours is None and key not in old and key not in new:
            continue
        name = key.api_name if served is None else f"**{served.name}**"
        cells = (_range_text(versions) for versions in (ours, old.get(key), new.get(key)))
        rows.append(f"| {int(key)} | {name} | {' | '.join(cells)} |\n")
    return _HEAD + "".join(rows)


if __name__ == "__main__":
    sys.stdout.write(compatibility_page())
