"""The page of a report: one file that needs no other, whatever names and messages stand in it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from report_kit import Page, Story

from kwire.report import model
from kwire.report.files import file_name, write_report
from kwire.report.page import render

HOSTILE = (
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "]]>&amp;<img src=x onerror=alert(1)>",
    "\u2028\u2029\x00\x1b[31m",
    "\ud800",
    "\"'`${x}@DATA@ @TEXT@",
)


def cluster(**more: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "title": "3 brokers",
        "bootstrap": "h:1",
        "notes": [],
        "failures": [],
        "brokers": [{"id": 1, "kind": "broker", "address": "h:1", "state": "running"}],
        "requests": [],
        "dropped": 0,
        "partitions": [],
        "partitions_left_out": 0,
        "partitions_error": None,
        "groups": [],
        "transactions": [],
    }
    return {**found, **Story().ask("KILL", 5, node_id=2).draw(), **more}


def case(name: str = "t.py::test_x", message: str = "assert 1 == 2") -> dict[str, Any]:
    times = {"start_ms": 1, "end_ms": 9, "wait": None}
    return {"id": name, "outcome": "failed", "message": message, **times}


def test_the_page_needs_nothing_else() -> None:
    text = render(model.report([cluster()], case()))
    page = Page(text)
    assert "http" not in re.sub(r"http(://www\.w3\.org/2000/svg|-equiv)", "", text)
    for name, attributes in page.elements:
        assert not attributes.keys() & {"src", "srcset", "action"}, (name, attributes)
        assert attributes.get("href", "data:,") == "data:,"
        assert not [key for key in attributes if key.startswith("on")]
    (policy,) = (a for name, a in page.elements if name == "meta" and "http-equiv" in a)
    assert policy["http-equiv"] == "Content-Security-Policy"
    assert str(policy["content"]).startswith("default-src 'none';")
    assert len(page.scripts) == 2 and page.data["format"] == 1
    assert len(text) < 100_000


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_names_are_text(text: str) -> None:
    plain = Page(render(model.report([cluster()], case())))
    story = Story().change("TOPIC_CREATED", 5, topic=text, partitions=1, replication_factor=1)
    story.group("STABLE", 6, group=text, assignor=text)
    request = {"t": 5, "broker": 1, "client_id": text, "api": "Fetch v1", "outcome": text}
    hostile = cluster(**story.draw(), notes=[text], failures=[text])
    hostile["requests"] = [{**request, "count": 1, "error": True}]
    report = model.report([hostile], case(text, text))
    page = Page(render(report))
    assert [name for name, _ in page.elements] == [name for name, _ in plain.elements]
    assert page.data == json.loads(json.dumps(report))
    assert page.scripts[1] == plain.scripts[1]
    assert render(report).encode("utf-8")


@pytest.mark.parametrize("text", HOSTILE)
def test_the_text_for_browsers_without_scripts_is_escaped(text: str) -> None:
    rendered = render(model.report([cluster()], case(text, text)))
    before = rendered.partition('<script type="application/json"')[0]
    assert "alert(1)</script>" not in before and "<img" not in before
    assert "kill" in before.partition("<noscript>")[2]


def test_the_script_makes_text_never_markup() -> None:
    script = Page(render(model.report([]))).scripts[1]
    forbidden = ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "Function(")
    assert not [word for word in forbidden if word in script]


@pytest.mark.parametrize(
    ("test_id", "name"),
    [
        ("tests/test_a.py::test_x", "tests.test_a.py.test_x.html"),
        ("t.py::Test::test_x[a-1]", "t.py.Test.test_x-a-1.html"),
        ("t.py::test_x[a/../b c]", "t.py.test_x-a_.._b_c-00000000.html"),
        ("../../etc/passwd", None),
        ("t.py::test[" + "x" * 500 + "]", None),
        ("", None),
        ("tést.py::ü", None),
    ],
)
def test_a_file_is_named_after_its_test(test_id: str, name: str | None) -> None:
    found = file_name(test_id)
    assert re.fullmatch(r"[A-Za-z0-9._=,+-]+\.html", found) and len(found) < 150
    assert not found.startswith(".") or test_id == ""
    if name is not None:
        assert re.sub("-[0-9a-f]{8}", "", found) == re.sub("-[0-9a-f]{8}", "", name)


def test_ids_that_differ_have_files_that_differ() -> None:
    ids = ["t.py::a[x y]", "t.py::a[x_y]", "t.py::a[x/y]", "t.py::a[x.y]", "t.py::a[x::y]"]
    assert len({file_name(each) for each in ids}) == len(ids)
    assert file_name("t.py::a[x y]") != file_name("t.py::a[x  y]")


def test_a_report_is_written_into_a_new_folder(tmp_path: Path) -> None:
    path = write_report(tmp_path / "new" / "er", "t.py::test_x", model.report([cluster()], case()))
    assert path == tmp_path / "new" / "er" / "t.py.test_x.html"
    assert Page(path.read_text(encoding="utf-8")).data["test"]["id"] == "t.py::test_x"


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium")
@pytest.mark.slow
def test_a_browser_draws_the_page_without_an_error(tmp_path: Path) -> None:
    hostile = cluster(notes=list(HOSTILE[:3]))
    path = write_report(tmp_path, "t", model.report([hostile], case(HOSTILE[0], HOSTILE[2])))
    options = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking")
    more = ("--disable-component-update", "--disable-sync", "--no-first-run", "--dump-dom")
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    command = [
        str(CHROMIUM),
        *options,
        *more,
        "--virtual-time-budget=2000",
        profile,
        f"file://{path}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    drawn = Page(done.stdout)
    names = [name for name, _ in drawn.elements]
    assert names.count("svg") >= 2 and "table" in names and names.count("script") == 2, done.stderr
    labels = [
        attributes.get("aria-label") or "" for name, attributes in drawn.elements if name == "g"
    ]
    assert any("killed" in label or "kill" in label for label in labels)
