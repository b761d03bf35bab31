"""What a flush flushes: the file, and the directories in which its name, or one above it, is new. Nothing else."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kwire.server.file_log_store import FileLogStore


class Recorder:
    """os.fsync that remembers what was flushed, as paths below the data directory."""

    def __init__(self, data: Path) -> None:
        self.paths: list[str] = []
        self.before: Callable[[str], None] | None = None
        self._data = data
        self._fsync = os.fsync

    def __call__(self, fd: int) -> None:
        path = os.path.relpath(os.readlink(f"/proc/self/fd/{fd}"), self._data)
        if self.before is not None:
            self.before(path)
        self._fsync(fd)
        self.paths.append(path)

    def taken(self) -> list[str]:
        """What was flushed since the last call."""
        paths, self.paths = self.paths, []
        return paths


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def flushed(data: Path, monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder(data)
    monkeypatch.setattr(os, "fsync", recorder)
    return recorder


@pytest.fixture
def store(data: Path, flushed: Recorder) -> Iterator[FileLogStore]:
    data.mkdir()
    store = FileLogStore(str(data))
    store.write_file("known", b"")
    flushed.taken()
    yield store
    store.close()


def append_and_flush(store: FileLogStore, path: str) -> None:
    file = store.open(path, create=True)
    file.append([b"x"])
    file.flush()


def test_the_first_flush_of_a_new_file_flushes_its_name_and_its_directorys(
    store: FileLogStore, flushed: Recorder
) -> None:
    store.make_dir("t-0")
    store.open("t-0/a", create=True)
    store.open("t-0/b", create=True)
    append_and_flush(store, "t-0/a")
    assert flushed.taken() == ["t-0/a", "t-0", "."]
    append_and_flush(store, "t-0/b")  # whose name was flushed with that of a
    append_and_flush(store, "t-0/a")
    assert flushed.taken() == ["t-0/b", "t-0/a"]


def test_a_known_file_does_not_pay_for_new_names_beside_it(
    store: FileLogStore, flushed: Recorder
) -> None:
    append_and_flush(store, "journal")
    assert flushed.taken() == ["journal", "."]
    for number in range(3):
        store.make_dir(f"t-{number}")
        store.write_file(f"t-{number}/meta", b"", flush=False)
        store.write_file("checkpoint", b"", flush=False)
        append_and_flush(store, "journal")
        assert flushed.taken() == ["journal"]
    append_and_flush(store, "t-1/a")
    assert flushed.taken() == ["t-1/a", "t-1", "."]
    store.open("t-1/b", create=True)
    append_and_flush(store, "t-1/a")
    assert flushed.taken() == ["t-1/a"]
    append_and_flush(store, "t-2/a")  # its directory's name was flushed with that of t-1
    assert flushed.taken() == ["t-2/a", "t-2"]
    append_and_flush(store, "t-1/b")
    assert flushed.taken() == ["t-1/b", "t-1"]


def test_a_whole_file_that_replaces_another_is_a_new_name(
    store: FileLogStore, flushed: Recorder
) -> None:
    for _ in range(2):
        store.write_file("f", b"x")
        assert flushed.taken() == ["f.tmp", "."]
    store.write_file("f", b"x", flush=False)
    assert flushed.taken() == []
    store.flush_file("f")
    assert flushed.taken() == ["f", "."]


def test_a_claimed_file_is_a_new_name(store: FileLogStore, flushed: Recorder) -> None:
    assert store.claim_file("f")
    store.flush_file("f")
    assert flushed.taken() == ["f", "."]


def test_names_that_an_earlier_process_has_left_are_flushed_once(
    data: Path, flushed: Recorder
) -> None:
    before = FileLogStore(str(data))
    for name in ("t-0", "u-0"):
        before.make_dir(name)
        before.open(f"{name}/a", create=True).append([b"x"])
    before.close()  # nothing was flushed, as when it is killed
    flushed.taken()
    store = FileLogStore(str(data))
    append_and_flush(store, "t-0/a")
    assert flushed.taken() == ["t-0/a", "t-0", "."]
    append_and_flush(store, "u-0/a")
    assert flushed.taken() == ["u-0/a", "u-0"]
    append_and_flush(store, "u-0/a")
    assert flushed.taken() == ["u-0/a"]
    store.close()


def test_after_a_clean_stop_names_are_known(data: Path, flushed: Recorder) -> None:
    before = FileLogStore(str(data))
    before.make_dir("t-0")
    append_and_flush(before, "t-0/a")
    before.write_file(".kafka_cleanshutdown", b"{}")
    before.close()
    store = FileLogStore(str(data))
    store.delete(".kafka_cleanshutdown")
    flushed.taken()
    append_and_flush(store, "t-0/a")
    assert flushed.taken() == ["t-0/a"]
    append_and_flush(store, "t-0/b")
    assert flushed.taken() == ["t-0/b", "t-0"]
    store.close()


def test_a_renamed_file_has_a_new_name(store: FileLogStore, flushed: Recorder) -> None:
    append_and_flush(store, "a")
    store.rename("a", "b")
    flushed.taken()
    append_and_flush(store, "b")
    assert flushed.taken() == ["b", "."]


def test_a_renamed_directory_takes_its_new_names_along(
    store: FileLogStore, flushed: Recorder
) -> None:
    store.make_dir("t-0.x-future")
    append_and_flush(store, "t-0.x-future/a")
    store.open("t-0.x-future/b", create=True).append([b"x"])
    store.rename("t-0.x-future", "t-0")
    flushed.taken()
    append_and_flush(store, "t-0/a")
    assert flushed.taken() == ["t-0/a", "."]
    append_and_flush(store, "t-0/b")
    assert flushed.taken() == ["t-0/b", "t-0"]


def test_a_directory_that_is_made_again_is_new(store: FileLogStore, flushed: Recorder) -> None:
    for _ in range(2):
        store.make_dir("t-0")
        append_and_flush(store, "t-0/a")
        assert flushed.taken() == ["t-0/a", "t-0", "."]
        store.delete_dir("t-0")


def test_a_file_that_is_made_again_is_new(store: FileLogStore, flushed: Recorder) -> None:
    for _ in range(2):
        append_and_flush(store, "a")
        assert flushed.taken() == ["a", "."]
        store.delete("a")


def test_a_name_is_new_as_long_as_its_directory_cannot_be_flushed(
    store: FileLogStore, flushed: Recorder
) -> None:
    def fail(path: str) -> None:
        if path == ".":
            raise OSError(5, "Input/output error")

    file = store.open("a", create=True)
    file.append([b"x"])
    flushed.before = fail
    with pytest.raises(OSError, match="Input/output"):
        file.flush()
    assert file.flushed_size == 0
    flushed.before = None
    flushed.taken()
    file.flush()
    assert flushed.taken() == ["a", "."]


def test_what_is_made_while_a_directory_is_flushed_counts_for_the_next_flush(
    store: FileLogStore, flushed: Recorder
) -> None:
    def make_more(path: str) -> None:
        if path == ".":
            flushed.before = None
            store.delete("b")
            for name in ("b", "c"):
                store.open(name, create=True).append([b"x"])

    store.open("b", create=True)
    flushed.before = make_more
    append_and_flush(store, "a")
    flushed.taken()
    append_and_flush(store, "b")
    assert flushed.taken() == ["b", "."]
    append_and_flush(store, "c")
    assert flushed.taken() == ["c"]


def test_a_flush_in_the_background_flushes_names_too(
    store: FileLogStore, flushed: Recorder
) -> None:
    store.make_dir("t-0")
    file = store.open("t-0/a", create=True)
    file.append([b"x"])
    file.start_flush()
    store.wait()
    assert flushed.taken() == ["t-0/a", "t-0", "."]


def test_the_name_of_a_new_data_directory_is_flushed(data: Path, flushed: Recorder) -> None:
    FileLogStore(str(data / "x" / "y")).close()
    assert flushed.taken() == ["x", ".", ".."]
    FileLogStore(str(data / "x" / "y")).close()
    FileLogStore(str(data / "z"), fsync=False).close()
    assert flushed.taken() == []
