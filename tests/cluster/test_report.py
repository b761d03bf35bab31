"""`--kwire-report`, seen from a user's tests, and `kwire report`: a page for each failed test."""

from __future__ import annotations

import asyncio
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from plugin_run import run_pytest

from kwire import aio
from kwire.report import model

pytestmark = pytest.mark.timeout(90)

TESTS = """
    import pytest
    import kwire as library

    @pytest.mark.kwire(brokers=3)
    def test_killed(kwire):
        kwire.create_topic("orders", assignment=[[1, 2, 3]])
        kwire.produce("orders", "tea")
        kwire.broker(1).kill()
        kwire.wait_for(lambda c: c.partition("orders", 0).leader == 2)
        kwire.wait_for(lambda c: c.partition("orders", 0).leader == 9, timeout=0.3)

    def test_passes(kwire):
        kwire.create_topic("t")

    def test_of_its_own():
        with library.Cluster(brokers=2) as cluster:
            cluster.create_topic("t")
            with cluster.network.cut(1, 2):
                raise RuntimeError("inside")

    def test_without_kwire():
        assert 0
"""


def model_in(path: Path) -> Any:
    found = re.search(r'id="kwire-data">(.*?)</script>', path.read_text(encoding="utf-8"), re.S)
    assert found is not None
    return json.loads(found[1])


@pytest.mark.parametrize("mode", ["thread", "process"])
def test_a_failed_test_has_a_page(tmp_path: Path, mode: str) -> None:
    run = run_pytest(tmp_path, TESTS, "--kwire-report=out/pages", f"--kwire-mode={mode}")
    assert run.counts == {"failed": 3, "passed": 1}, run.text
    folder = tmp_path / "out" / "pages"
    killed, own = folder / "test_it.py.test_killed.html", folder / "test_it.py.test_of_its_own.html"
    assert sorted(folder.iterdir()) == sorted([killed, own])
    assert f"what happened, as a page: {killed}" in run.text
    found = model_in(killed)
    test, (cluster,) = found["test"], found["clusters"]
    assert (test["id"], test["outcome"]) == ("test_it.py::test_killed", "failed")
    assert "WaitTimeoutError" in test["message"] and "test_it.py:" in test["message"]
    assert test["wait"]["seconds"] == 0.3 and "== 9" in test["wait"]["text"]
    kinds = [each["kind"] for each in cluster["events"]]
    assert kinds.index("topic") < kinds.index("kill") < kinds.index("leader")
    assert [s["kind"] for s in cluster["spans"] if s["lane"] == "1"][-1] == "down"
    assert [s["kind"] for s in cluster["spans"] if s["lane"] == "test"] == ["test", "wait"]
    (partition,) = cluster["partitions"]
    assert partition["leader"] == 2 and partition["replicas"][1]["end"] == 1


def test_a_paused_broker_is_in_the_page_and_not_waited_for() -> None:
    """Its groups were asked for until the request timed out, after 10 s."""

    async def main() -> None:
        async with aio.Cluster(2, topics=["orders:1:2"]) as cluster:
            await cluster.broker(2).pause()
            begun = time.monotonic()
            found = await model.describe(cluster)
            assert time.monotonic() - begun < 8
            assert found["groups"] is None
            bars = [each["kind"] for each in found["spans"] if each["lane"] == "2"]
            assert bars == ["up", "paused"]
            assert [each["kind"] for each in found["events"] if "2" in each["lanes"]][-1] == "pause"
            await cluster.broker(2).resume()
            assert (await model.describe(cluster))["groups"] == []

    asyncio.run(main())


def test_a_cluster_that_the_failure_has_stopped_is_in_the_page(tmp_path: Path) -> None:
    run_pytest(tmp_path, TESTS, "--kwire-report=.", "-k", "own")
    found = model_in(tmp_path / "test_it.py.test_of_its_own.html")
    (cluster,) = found["clusters"]
    assert [each["name"] for each in cluster["events"] if "cut" in each["text"]]
    assert cluster["partitions"][0]["topic"] == "t" and cluster["title"].startswith("2 brokers")


def test_the_ini_file_may_name_the_folder(tmp_path: Path) -> None:
    run_pytest(tmp_path, TESTS, "-k", "killed", ini="kwire_report = pages")
    assert (tmp_path / "pages" / "test_it.py.test_killed.html").exists()


def test_a_session_cluster_shows_the_test_and_not_those_before(tmp_path: Path) -> None:
    source = """
    def test_first(kwire):
        kwire.create_topic("earlier")
        kwire.broker(1).kill()

    def test_second(kwire):
        kwire.create_topic("now")
        assert 0
    """
    run_pytest(tmp_path, source, "--kwire-report=.", "--kwire-mode=process")
    (cluster,) = model_in(tmp_path / "test_it.py.test_second.html")["clusters"]
    texts = " ".join(each["text"] for each in cluster["events"] if each["kind"] != "detail")
    assert "now has been created" in texts and "earlier has been created" not in texts
    assert [s["kind"] for s in cluster["spans"] if s["lane"] == "1"][-1] == "up"


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    run = run_pytest(tmp_path, TESTS, "-k", "killed", ini="kwire_report = file\n")
    assert run.counts["failed"] == 1 and "--kwire-report: no page, " in run.text
    assert "INTERNALERROR" not in run.text
    assert run.text.count("kwire_report: expected a folder that can be written, not ") == 1


def test_a_folder_that_cannot_be_made_ends_the_run_before_its_tests(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    run = run_pytest(tmp_path, TESTS, "--kwire-report=file/pages")
    folder = tmp_path / "file" / "pages"
    said = f"ERROR: --kwire-report: expected a folder that can be written, not {folder}: "
    assert run.status == pytest.ExitCode.USAGE_ERROR
    assert run.text.strip().startswith(said) and "\n" not in run.text.strip()


def test_a_run_without_failures_leaves_no_folder(tmp_path: Path) -> None:
    run = run_pytest(tmp_path, TESTS, "--kwire-report=new/pages", "-k", "passes")
    assert run.status == 0 and not (tmp_path / "new").exists()


def test_without_the_option_nothing_is_written_or_said(tmp_path: Path) -> None:
    run = run_pytest(tmp_path, TESTS, "-k", "killed")
    assert "as a page" not in run.text and not list(tmp_path.rglob("*.html"))
