"""Log directories made by hand, and their rows as Python values."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

from kwire.pipeline import planning, reading
from kwire.pipeline.options import parse


def write_segment(
    root: Path,
    parts: list[bytes],
    *,
    base_offset: int = 0,
    partition: str = "orders-0",
    suffix: str = "",
) -> Path:
    """A segment of batches in a log directory; returns its file."""
    folder = root / partition
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{base_offset:020d}.log{suffix}"
    path.write_bytes(b"".join(parts))
    return path


def write_index(
    segment: Path, entries: list[tuple[int, int]], *, kind: str = "index", form: str = ">ii"
) -> None:
    """Entries as they stand in the file: relative offset and position; of a time index (">qi") time and offset."""
    stem, _, suffix = str(segment).rpartition(".log")
    Path(f"{stem}.{kind}{suffix}").write_bytes(
        b"".join(struct.pack(form, *entry) for entry in entries)
    )


def rows(root: Path, *names: str, **options: Any) -> list[dict[str, Any]]:
    """All rows of the log directories below `root`, in the planned order, with some columns or all."""
    parsed = parse({"path": str(root), **{name: str(value) for name, value in options.items()}})
    columns = names or tuple(reading.columns_of(parsed))
    found: list[dict[str, Any]] = []
    for part in planning.plan(parsed):
        for table in reading.read(part, columns, parsed):
            table.validate(full=True)
            found += table.to_pylist()
    return found
