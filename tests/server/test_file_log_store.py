"""The rules of a LogStore, for the real one and for the one in memory; and what only files can do wrong."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kwire.replication.core.log_store import LogStore
from kwire.replication.core.memory_log_store import MemoryLogStore
from kwire.server.file_log_store import FileLogStore


@pytest.fixture(params=["memory", "files", "files, flushed", "files, one descriptor"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LogStore]:
    if request.param == "memory":
        yield MemoryLogStore(lambda: 1234)
        return
    limit = 1 if "one" in request.param else None
    fsync = "flushed" in request.param
    files = FileLogStore(str(tmp_path / "data"), fsync=fsync, max_open_files=limit)
    yield files
    files.close()


def test_a_file_must_be_created_before_it_can_be_opened(store: LogStore) -> None:
    store.make_dir("t-0")
    with pytest.raises(FileNotFoundError):
        store.open("t-0/a.log")
    store.open("t-0/a.log", create=True).append([b"x"])
    assert store.open("t-0/a.log").size == 1


def test_nothing_is_created_in_a_directory_that_is_not_there(store: LogStore) -> None:
    with pytest.raises(FileNotFoundError):
        store.open("t-0/a.log", create=True)
    with pytest.raises(FileNotFoundError):
        store.write_file("t-0/a", b"")


def test_parts_are_written_one_after_the_other_and_read_anywhere(store: LogStore) -> None:
    file = store.open("a", create=True)
    file.append([b"ab", bytearray(b"cd"), memoryview(b"xefx")[1:3]])
    file.append([])
    file.append([b"g"])
    assert file.size == 7
    assert file.read(0, 100) == b"abcdefg"
    assert file.read(2, 3) == b"cde"
    assert file.read(7, 1) == b""
    assert file.read(100, 1) == b""
    assert store.read_file("a") == b"abcdefg"
    assert store.size("a") == 7


def test_more_parts_than_one_system_call_takes(store: LogStore) -> None:
    file = store.open("a", create=True)
    file.append([bytes([n % 251]) for n in range(3000)])
    assert file.read(0, 3000) == bytes(n % 251 for n in range(3000))


def test_truncate_cuts_and_never_grows(store: LogStore) -> None:
    file = store.open("a", create=True)
    file.append([b"abcdef"])
    file.truncate(10)
    assert file.size == 6
    file.truncate(2)
    file.append([b"X"])
    assert file.read(0, 9) == b"abX"


def test_one_path_opened_twice_is_one_file(store: LogStore) -> None:
    first, second = store.open("a", create=True), store.open("a", create=True)
    first.append([b"1"])
    second.append([b"2"])
    assert first.size == second.size == 2
    assert first.read(0, 2) == b"12"


def test_a_closed_file_opens_again_when_it_is_used(store: LogStore) -> None:
    file = store.open("a", create=True)
    file.append([b"1"])
    file.close()
    file.close()
    file.append([b"2"])
    assert file.read(0, 2) == b"12"


def test_whole_files_are_replaced_and_leave_no_temporary(store: LogStore) -> None:
    store.make_dir("d/e")
    store.write_file("d/e/f", b"one")
    store.write_file("d/e/f", b"2", flush=False)
    assert store.read_file("d/e/f") == b"2"
    assert store.list_dir("d/e") == ["f"]
    assert store.open("d/e/f").read(0, 9) == b"2"


def test_a_file_written_without_a_flush_can_be_flushed_later(store: LogStore) -> None:
    store.write_file("f", b"x", flush=False)
    store.flush_file("f")
    store.flush_file("gone")
    assert store.read_file("f") == b"x"


def test_names_in_a_directory_are_sorted(store: LogStore) -> None:
    for name in ("b-0", "a-1", "a-10"):
        store.make_dir(name)
        store.write_file(f"{name}/x", b"")
    store.write_file("z", b"")
    assert [name for name in store.list_dir() if name != ".lock"] == ["a-1", "a-10", "b-0", "z"]
    assert store.list_dir("a-1") == ["x"]
    assert store.list_dir("nothing") == []
    assert store.list_dir("z") == []


def test_a_renamed_file_keeps_its_readers_and_replaces_another(store: LogStore) -> None:
    store.write_file("b", b"old")
    file = store.open("a", create=True)
    file.append([b"new"])
    file.close()
    store.rename("a", "b")
    assert not store.exists("a")
    file.append([b"er"])
    assert store.read_file("b") == b"newer"
    assert store.open("b").size == 5
    with pytest.raises(FileNotFoundError):
        store.rename("a", "c")


def test_a_renamed_directory_keeps_its_readers(store: LogStore) -> None:
    store.make_dir("t-0")
    file = store.open("t-0/a", create=True)
    file.append([b"1"])
    file.close()
    store.rename("t-0", "t-0.x-delete")
    assert store.list_dir("t-0") == []
    assert file.read(0, 9) == b"1"
    store.make_dir("t-0")
    store.open("t-0/a", create=True).append([b"other"])
    assert file.read(0, 9) == b"1"
    assert store.read_file("t-0.x-delete/a") == b"1"


def test_deleting_what_is_gone_is_no_error(store: LogStore) -> None:
    store.make_dir("d/e")
    store.write_file("d/e/f", b"x")
    store.open("d/g", create=True)
    store.delete("d/e/f")
    store.delete("d/e/f")
    store.delete_dir("d")
    store.delete_dir("d")
    assert not store.exists("d") and not store.exists("d/g")


def test_a_file_deleted_and_made_again_is_empty(store: LogStore) -> None:
    store.open("a", create=True).append([b"x"])
    store.delete("a")
    assert store.open("a", create=True).size == 0


@pytest.mark.parametrize("path", ["../x", "/etc/x", "a/../b", "a//b", ".", "a\0b", "a/./b", ""])
def test_no_path_leads_out_of_the_store(store: LogStore, path: str) -> None:
    for use in (
        lambda: store.write_file(path, b"x"),
        lambda: store.open(path, create=True),
        lambda: store.delete(path),
        lambda: store.delete_dir(path),
        lambda: store.make_dir(path),
        lambda: store.rename(path, "b"),
        lambda: store.rename("b", path),
    ):
        with pytest.raises(OSError):
            use()


def test_flushing_is_told(store: LogStore) -> None:
    file = store.open("a", create=True)
    file.append([b"abc"])
    assert file.flushed_size == 0
    file.flush()
    assert file.flushed_size == 3
    file.append([b"d"])
    file.truncate(2)
    assert file.flushed_size == 2


# ---- the store in memory: power cuts


def test_a_crash_takes_what_was_not_flushed() -> None:
    store = MemoryLogStore()
    file = store.open("a", create=True)
    file.append([b"abc"])
    file.flush()
    file.append([b"def"])
    store.write_file("c", b"old")
    store.write_file("c", b"new", flush=False)
    store.write_file("d", b"never", flush=False)
    store.write_file("e", b"later", flush=False)
    store.flush_file("e")
    store.crash()
    assert store.read_file("e") == b"later"
    assert store.read_file("a") == b"abc"
    assert store.read_file("c") == b"old"
    assert store.read_file("d") == b""
    with pytest.raises(OSError):
        file.append([b"from the dead"])


def test_a_crash_may_keep_a_part_of_what_was_not_flushed() -> None:
    store = MemoryLogStore()
    store.open("a", create=True).append([b"abcdef"])
    store.crash(keep=lambda unflushed: unflushed // 2)
    assert store.read_file("a") == b"abc"


def test_an_injected_fault_changes_nothing_and_comes_once() -> None:
    store = MemoryLogStore()
    file = store.open("a", create=True)
    store.fail_next("append", OSError(28, "disk full"))
    with pytest.raises(OSError):
        file.append([b"x"])
    assert file.size == 0
    file.append([b"y"])
    assert file.read(0, 9) == b"y"


# ---- real files


def test_a_second_broker_is_told_which_directory_is_in_use(tmp_path: Path) -> None:
    first = FileLogStore(str(tmp_path))
    with pytest.raises(OSError, match=f"{tmp_path} is in use"):
        FileLogStore(str(tmp_path))
    first.close()
    FileLogStore(str(tmp_path)).close()


def test_few_descriptors_serve_many_files(tmp_path: Path) -> None:
    store = FileLogStore(str(tmp_path), fsync=False, max_open_files=4)
    before = len(os.listdir("/proc/self/fd"))
    files = [store.open(f"f{n}", create=True) for n in range(50)]
    for turn in range(3):
        for n, file in enumerate(files):
            file.append([bytes([n, turn])])
    assert len(os.listdir("/proc/self/fd")) <= before + 4
    for n, file in enumerate(files):
        assert file.read(0, 9) == bytes([n, 0, n, 1, n, 2])
    store.close()


def test_a_failed_append_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileLogStore(str(tmp_path), fsync=False)
    file = store.open("a", create=True)
    file.append([b"whole"])

    def disk_full(fd: int, data: object, position: int) -> int:
        raise OSError(28, "No space left on device")

    def half(fd: int, buffers: list[bytes], position: int) -> int:
        data = b"".join(buffers)
        return os.write(fd, data[: len(data) // 2]) if os.lseek(fd, position, 0) else 0

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwritev", half)
        patched.setattr(os, "pwrite", disk_full)
        with pytest.raises(OSError, match="No space"):
            file.append([b"torn", b"apart"])
    assert file.size == 5
    assert store.read_file("a") == b"whole"
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwritev", half)
        file.append([b"slow", b"disk"])
    assert store.read_file("a") == b"wholeslowdisk"
    store.close()


def test_a_failed_replacement_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileLogStore(str(tmp_path), fsync=False)
    store.write_file("a", b"old")

    def disk_full(fd: int, data: object, position: int) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", disk_full)
        with pytest.raises(OSError, match="No space"):
            store.write_file("a", b"new")
    assert store.read_file("a") == b"old"
    assert sorted(os.listdir(tmp_path)) == [".lock", "a"]
    store.close()


def test_a_background_flush_tells_when_it_is_done(tmp_path: Path) -> None:
    store = FileLogStore(str(tmp_path))
    file = store.open("a", create=True)
    file.append([b"abc"])
    file.start_flush()
    assert file.flushed_size == 0, "that would be before the end of the step"
    store.wait()
    assert file.flushed_size == 3
    store.close()


def test_without_fsync_a_flush_is_free_and_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda fd: pytest.fail("fsync was called"))
    store = FileLogStore(str(tmp_path), fsync=False)
    file = store.open("a", create=True)
    file.append([b"abc"])
    file.flush()
    store.write_file("b", b"x")
    assert file.flushed_size == 3
    store.close()


# --- files that a snapshot shares


@pytest.fixture(params=[False, True])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[FileLogStore, Path]]:
    """A store with a file "abcd" that has another link; it was open before, or is opened now."""
    link = tmp_path / "link"
    store = FileLogStore(str(tmp_path / "data"))
    file = store.open("a.log", create=True)
    file.append([b"abcd"])
    if request.param:
        store.close()
        os.link(tmp_path / "data" / "a.log", link)
        store = FileLogStore(str(tmp_path / "data"))
    else:
        store.release_files()
        os.link(tmp_path / "data" / "a.log", link)
    yield store, link
    store.close()


def test_a_shared_file_is_copied_before_an_append(shared: tuple[FileLogStore, Path]) -> None:
    store, link = shared
    file = store.open("a.log")
    assert file.read(0, 9) == b"abcd"
    assert os.stat(link).st_nlink == 2
    file.append([b"ef", b"g"])
    file.append([b"h"])
    assert link.read_bytes() == b"abcd" and file.read(0, 9) == b"abcdefgh"
    assert store.read_file("a.log") == b"abcdefgh" and file.size == 8
    assert file.flushed_size == 0
    file.flush()
    assert os.stat(link).st_nlink == 1 and store.list_dir() == [".lock", "a.log"]


def test_a_shared_file_is_copied_before_it_is_truncated(shared: tuple[FileLogStore, Path]) -> None:
    store, link = shared
    file = store.open("a.log")
    file.truncate(4)  # nothing to do
    assert os.stat(link).st_nlink == 2
    file.truncate(1)
    file.append([b"x"])
    assert (link.read_bytes(), file.read(0, 9)) == (b"abcd", b"ax")


def test_a_file_that_was_shared_can_be_changed(shared: tuple[FileLogStore, Path]) -> None:
    store, link = shared
    file = store.open("a.log")
    assert file.read(0, 1) == b"a"
    link.unlink()
    file.truncate(3)
    file.append([b"x"])
    assert file.read(0, 9) == b"abcx"


def test_a_copy_that_fails_changes_nothing(
    shared: tuple[FileLogStore, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, link = shared
    file = store.open("a.log")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("kwire.server.log_file.copy_bytes", full)
        with pytest.raises(OSError, match="No space"):
            file.append([b"x"])
    assert (link.read_bytes(), file.read(0, 9), file.size) == (b"abcd", b"abcd", 4)
    assert store.list_dir() == [".lock", "a.log"]
    file.append([b"x"])
    assert (link.read_bytes(), file.read(0, 9)) == (b"abcd", b"abcdx")


def test_bytes_are_copied_where_the_system_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kwire.server.log_file import copy_bytes

    data = os.urandom(3 << 20)
    (tmp_path / "a").write_bytes(data)
    monkeypatch.delattr(os, "copy_file_range")
    with open(tmp_path / "a", "rb") as source, open(tmp_path / "b", "wb") as target:
        copy_bytes(source.fileno(), target.fileno(), len(data) - 1)
    assert (tmp_path / "b").read_bytes() == data[:-1]
