"""A directory that nobody has written to yet is made, with its files, when it must be, and as if it had always been."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kwire.server.file_log_store import FileLogStore
from kwire.server.log_dirs import LogDirs


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def store(data: Path) -> Iterator[FileLogStore]:
    store = FileLogStore(str(data))
    store.make_dir("t-0")
    store.write_file("t-0/meta", b"topic", flush=False)
    store.open("t-0/a.log", create=True)
    yield store
    store.close()


def on_disk(data: Path) -> list[str] | None:
    """The files of the directory; None when it is not there."""
    return sorted(os.listdir(data / "t-0")) if (data / "t-0").exists() else None


def test_nothing_is_made_before_it_must_be(store: FileLogStore, data: Path) -> None:
    assert os.listdir(data) == [".lock"]
    assert store.list_dir() == [".lock", "t-0"]
    assert store.exists("t-0") and not store.exists("u-0")
    assert store.exists("t-0/meta")
    assert store.exists("t-0/a.log")
    assert not store.exists("t-0/b.log")
    assert store.open("t-0/a.log").size == 0
    store.make_dir("t-0")
    assert on_disk(data) is None


def test_the_first_append_makes_all_of_them(store: FileLogStore, data: Path) -> None:
    file = store.open("t-0/a.log", create=True)
    other = store.open("t-0/b.log", create=True)
    file.append([b"x"])
    assert on_disk(data) == ["a.log", "b.log", "meta"]
    assert (data / "t-0" / "meta").read_bytes() == b"topic"
    other.append([b"yy"])
    assert (file.read(0, 9), other.read(0, 9)) == (b"x", b"yy")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("list_dir", ["a.log", "meta"]),
        ("close", None),
    ],
)
def test_a_listing_and_the_end_make_them(
    store: FileLogStore, data: Path, name: str, expected: object
) -> None:
    assert getattr(store, name)(*(["t-0"] if name == "list_dir" else [])) == expected
    assert on_disk(data) == ["a.log", "meta"]


@pytest.mark.parametrize("question", ["size", "modified_ms", "read_file", "flush_file"])
def test_a_question_about_a_file_makes_them(store: FileLogStore, data: Path, question: str) -> None:
    getattr(store, question)("t-0/meta")
    assert on_disk(data) == ["a.log", "meta"]


def test_a_whole_file_may_be_replaced_opened_and_deleted_before(
    store: FileLogStore, data: Path
) -> None:
    store.write_file("t-0/meta", b"second", flush=False)
    assert store.open("t-0/meta").read(0, 99) == b"second"
    store.make_dir("u-0")
    store.write_file("u-0/meta", b"", flush=False)
    store.open("u-0/a.log", create=True)
    store.delete("u-0/meta")
    store.delete("u-0/a.log")
    assert not store.exists("u-0/meta")
    assert store.list_dir("u-0") == []


def test_a_flushed_file_is_on_the_disk_at_once(store: FileLogStore, data: Path) -> None:
    store.write_file("t-0/other", b"x", flush=True)
    assert on_disk(data) == ["a.log", "meta", "other"]


def test_a_renamed_directory_takes_them_along(store: FileLogStore, data: Path) -> None:
    file = store.open("t-0/a.log")
    store.rename("t-0", "t-0.x-delete")
    assert store.list_dir() == [".lock", "t-0.x-delete"]
    assert os.listdir(data) == [".lock"]
    with pytest.raises(FileNotFoundError):
        store.open("t-0/a.log")
    file.append([b"x"])
    assert sorted(os.listdir(data / "t-0.x-delete")) == ["a.log", "meta"]
    assert on_disk(data) is None


def test_a_renamed_file_is_made_first(store: FileLogStore, data: Path) -> None:
    store.rename("t-0/a.log", "t-0/a.log.deleted")
    assert on_disk(data) == ["a.log.deleted", "meta"]


def test_nothing_takes_the_name_of_one(store: FileLogStore) -> None:
    store.make_dir("u-0")
    for other in ("u-0", "t-0/meta"):
        with pytest.raises(OSError, match="the target is a directory"):
            store.rename(other, "t-0")


def test_a_directory_inside_one_is_made_at_once(store: FileLogStore, data: Path) -> None:
    store.make_dir("t-0/inside")
    store.make_dir("u-0/inside")
    assert on_disk(data) == ["a.log", "inside", "meta"]
    assert os.listdir(data / "u-0") == ["inside"]


def test_one_that_is_there_is_not_new(store: FileLogStore, data: Path) -> None:
    (data / "u-0").mkdir()
    (data / "u-0" / "a.log").write_bytes(b"old")
    store.make_dir("u-0")
    assert store.open("u-0/a.log", create=True).size == 3


def test_of_several_log_directories_each_makes_its_directories_at_once(tmp_path: Path) -> None:
    dirs = LogDirs(f"{tmp_path}/a,{tmp_path}/b")
    for opened in dirs.opened:
        assert opened.store is not None
        opened.store.make_dir("t-0")
        opened.store.write_file("t-0/meta", b"", flush=False)
    assert os.listdir(tmp_path / "a" / "t-0") == os.listdir(tmp_path / "b" / "t-0") == []
    dirs.close()
    assert os.listdir(tmp_path / "a" / "t-0") == ["meta"]


def test_a_directory_that_cannot_be_made_fails_who_writes_first(
    store: FileLogStore, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def disk_full(path: str) -> None:
        raise OSError(28, "No space left on device", path)

    file = store.open("t-0/a.log")
    with monkeypatch.context() as patched:
        patched.setattr(os, "mkdir", disk_full)
        with pytest.raises(OSError, match="No space"):
            file.append([b"x"])
    assert file.size == 0
    file.append([b"y"])
    assert store.read_file("t-0/a.log") == b"y"


def test_a_temporary_store_leaves_them_unmade_at_its_end(tmp_path: Path) -> None:
    store = FileLogStore(str(tmp_path), fsync=False)
    store.make_dir("t-0")
    store.write_file("t-0/meta", b"", flush=False)
    store.close()
    assert os.listdir(tmp_path) == [".lock"]


def test_a_deleted_directory_takes_them_along(store: FileLogStore, data: Path) -> None:
    store.delete_dir("t-0")
    assert os.listdir(data) == [".lock"]
    store.make_dir("t-0")
    assert not store.exists("t-0/meta")
    assert store.list_dir("t-0") == []


def test_a_name_that_leaves_the_store_is_refused(store: FileLogStore) -> None:
    for path in ("t-0/../x", "t-0/"):
        with pytest.raises(OSError):
            store.open(path, create=True)
        with pytest.raises(OSError):
            store.write_file(path, b"", flush=False)
