"""Remove what an interrupted deletion, compaction or write has left in a partition's directory.

Answers to LogLoader.removeTempFilesAndCollectSwapFiles and completeSwapOperations of Kafka 3.9.
"""

from __future__ import annotations

from kwire.replication.log.segment import LogSegment, base_offset_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.replication.core.log_store import LogStore


def remove_leftovers(store: LogStore, directory: str) -> tuple[list[str], list[str]]:
    """Delete `.deleted` and `.cleaned` files, complete `.swap` files; return all names and those.

    A `.swap` at or above the first `.cleaned` offset belongs to an unfinished replacement and is
    deleted."""
    names = store.list_dir(directory)
    if not any(name.endswith((".deleted", ".cleaned", ".swap", ".tmp")) for name in names):
        return names, []
    cleaned = [base_offset_of(name) for name in names if name.endswith(".cleaned")]
    first_cleaned = min((base for base in cleaned if base is not None), default=None)
    swaps: list[str] = []
    for name in names:
        base = base_offset_of(name)
        if name.endswith(".swap") and base is not None:
            if first_cleaned is None or base < first_cleaned:
                swaps.append(name)
                continue
        elif not name.endswith((".deleted", ".cleaned", ".tmp")):
            continue
        store.delete(f"{directory}/{name}")
    replaced = _finish_swaps(store, directory, swaps)
    return store.list_dir(directory), replaced


def _finish_swaps(store: LogStore, directory: str, swaps: list[str]) -> list[str]:
    """Delete the segments that finished replacements cover; rename those and return their names."""
    ranges = []
    for name in swaps:
        if name.endswith(".log.swap"):
            base = int(name[:20])
            segment = LogSegment.open(store, directory, base, 0, ".swap")
            segment.reset_indexes()
            last = segment.last_batch()
            ranges.append((base, last.next_offset if last is not None else base + 1))
    for name in store.list_dir(directory):
        base_offset = base_offset_of(name)
        if base_offset is None or name.endswith(".swap"):
            continue
        if any(start <= base_offset < end for start, end in ranges):
            store.delete(f"{directory}/{name}")
    replaced = [name.removesuffix(".swap") for name in swaps]
    for name in replaced:
        store.rename(f"{directory}/{name}.swap", f"{directory}/{name}")
    return replaced
