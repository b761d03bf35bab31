"""`python -m kwire.protocol.check` from the outside."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from kwire.protocol import check

DATA = Path(__file__).parents[1] / "data"

LINE = {
    "name": "ProduceRequest",
    "key": 0,
    "v": 0,
    "case": "defaults",
    "hex": "00000000000000000000",
    "json": {"acks": 0, "timeoutMs": 0, "topicData": []},
}


def run(capsys: pytest.CaptureFixture[str], path: Path, *lines: object) -> tuple[int, list[str]]:
    text = "".join(json.dumps(line) + "\n" for line in lines).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    status = check.main([str(path)])
    return status, capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("name", ["x.jsonl.gz", "x.jsonl"])
def test_good_lines_pass(capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str) -> None:
    assert run(capsys, tmp_path / name, LINE, LINE) == (0, ["2 passed, 0 failed"])


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"hex": "0000000000000000000000"}, "decoding stopped at byte 10 of 11"),
        ({"hex": "000000000000000000"}, "does not decode"),
        ({"hex": "00010000000000000000"}, "decoded to"),
        ({"json": {"acks": 0, "timeoutMs": 1, "topicData": []}}, "decoded to"),
        ({"json": {"acks": 0, "timeOut": 0}}, "has no timeOut"),
        ({"name": "Nonsense"}, "no such message"),
        ({"v": 99}, "does not decode"),
        ({"v": "9"}, "cannot be checked"),
        ({"hex": "0"}, "cannot be checked"),
        ({"json": [1]}, "cannot be checked"),
        ({"json": {"topicData": 7}}, "cannot be checked"),
    ],
)
def test_a_wrong_line_is_reported_and_fails(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, change: dict[str, object], problem: str
) -> None:
    status, lines = run(capsys, tmp_path / "x.jsonl", LINE, {**LINE, **change})
    assert status == 1
    assert problem in lines[0]
    assert lines[1:] == ["1 passed, 1 failed"]


@pytest.mark.parametrize(
    "content",
    [b"{", b"\xff\xfe", b"[1]\n", b'{"a": 1}\n', b"\x1f\x8bxxx", b'{"name":"X","json":1}\n'],
)
def test_an_unreadable_file_is_one_line_and_a_failure(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    assert check.main([str(path)]) == 1
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{path}: cannot be read") or "no such message" in first
    assert last.startswith("0 passed, ")


def test_a_file_that_is_not_there_does_not_stop_the_others(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    good = tmp_path / "good.jsonl"
    good.write_text(json.dumps(LINE))
    assert check.main([str(tmp_path / "none"), str(good)]) == 1
    first, last = capsys.readouterr().out.splitlines()
    assert "cannot be read" in first
    assert last == "1 passed, 0 failed"


def test_changed_batches_and_requests_are_noticed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with gzip.open(DATA / "golden-batches.jsonl.gz") as lines:
        batch = json.loads(next(lines))
    request = json.loads((DATA / "control-plane-3.9.jsonl").read_text().splitlines()[0])
    batch["batches"][0]["records"][0]["timestamp"] += 1
    status, out = run(capsys, tmp_path / "x", batch, {**request, "v": 7}, request)
    assert status == 1
    assert "read as" in out[0]
    assert "has the header of UpdateMetadata version 8" in out[1]
    assert out[2:] == ["1 passed, 2 failed"]


def test_without_files_it_says_how_to_call_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert check.main([]) == 2
    assert "FILE" in capsys.readouterr().err
