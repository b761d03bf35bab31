"""The page of an audit: what it says first, that hostile names stay text, that it stays small, what is left out."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import page_kit
import pytest
from page_kit import at, in_sync, interval, leads, lost, write

pytest.importorskip("pyarrow")
pytest.importorskip("matplotlib")

from kwire.audit import page
from kwire.audit.canvas import clip, clip_name, text_width
from kwire.audit.stored import MAX_FINDINGS
from kwire.audit.svg import COLOURS, printable
from kwire.audit.tables import TABLES
from kwire.errors import KwireError

HOSTILE = (
    "</script><script>alert(1)</script>",
    "</title></svg><img src=x onerror=alert(1)>",
    "]]>&amp;<!-- $\\frac{a}{b}$",
    "\x00\x1b[31m\u2028\u202egnp.exe\ufffe",
    "@BODY@ @STYLE@ \" ' ` ${x}",
    "$" * 200,
)


class Page(HTMLParser):
    """A page's elements, the text outside of styles and tooltips, and the tooltips."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.source = path.read_text(encoding="utf-8")
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text, self.tips, self._within = "", "", ""
        self.feed(self.source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in ("style", "title"):
            self._within = tag

    def handle_endtag(self, tag: str) -> None:
        self._within = "" if tag == self._within else self._within

    def handle_data(self, data: str) -> None:
        if not self._within:
            self.text += f" {data}"
        elif self._within == "title":
            self.tips += f"\n{data}"

    def sentence(self) -> str:
        return re.search("<h1>(.*?)</h1>", self.source, re.S)[1]  # type: ignore[index]


@pytest.fixture(scope="module")
def disaster(tmp_path_factory: pytest.TempPathFactory) -> Page:
    return Page(page.write(page_kit.disaster(tmp_path_factory.mktemp("disaster"))))


def made(folder: Path, running: bool = False, **tables: list[page_kit.Row]) -> Page:
    return Page(page.write(write(folder, **tables), running))


# --- what it says


def test_the_first_sentence_says_what_how_many_where_when_and_why(disaster: Page) -> None:
    assert disaster.sentence() == (
        "3 records were lost in orders-0 at 12:00:08.203 UTC, within 8 ms, because broker 3 was"
        " elected uncleanly in epoch 1 at 12:00:08.714 with log end 1412; broker 1 truncated to 1412 (event 17)."
    )
    assert "<title>3 lost: audit</title>" in disaster.source


def test_the_story_is_told_in_the_order_of_time(disaster: Page) -> None:
    story = [
        *("12:00:06.900", "orders-0 shrank: 1,2,3 → 1."),
        *("12:00:08.203", "3 records were lost in orders-0."),
        *("12:00:08.214", "orders-0 had no leader for 500 ms."),
        *("12:00:08.714", "Unclean election: broker 3 leads orders-0"),
        "Broker 3 became the leader of orders-0, leader epoch 1.",
        *("12:00:14.352", "Broker 1 truncated its log of orders-0: 1415 -> 1412: the epoch 0"),
    ]
    told = disaster.text.partition("What happened")[2]
    places = [told.find(each) for each in story]
    assert -1 not in places and places == sorted(places), dict(zip(story, places, strict=True))


def test_plots_have_their_words_as_text_and_as_tooltips(disaster: Page) -> None:
    drawings = "".join(re.findall("<svg.*?</svg>", disaster.source, re.S))
    for words in ("3 lost", "unclean election", "no leader 500 ms", "broker 3 leads", "p99"):
        assert f">{words}<" in drawings, words
    for words in ("nobody leads\n12:00:08.214 UTC, for 500 ms", "in sync: 2,3 (2 of 3)"):
        assert words in disaster.tips
    assert "450 records acknowledged\np50 " in disaster.tips
    assert "DejaVu" not in disaster.source and "<use" not in disaster.source


def test_no_finding_is_good_news(tmp_path: Path) -> None:
    found = Page(page.write(page_kit.good(tmp_path)))
    assert found.sentence() == "All 9\u202f000 acknowledged records are there, once and in order."
    assert "All 9 replicas are equal below the high watermark." in found.text
    assert 'class="verdict good"' in found.source and "had no leader for 46 ms." in found.text
    assert 'class="verdict bad"' not in found.source


def test_several_kinds_and_causes_are_counted(tmp_path: Path) -> None:
    doubled = {**lost()[0], "kind": "doubled", "cause": None, "event": None, "time": None}
    other = {**lost()[0], "cause": "Retention ran", "event": None, "partition": 1}
    unknown = {**lost()[0], "kind": "melted", "cause": None, "event": None}
    found = made(tmp_path, findings=[*lost(), other, doubled, doubled, unknown])
    assert found.sentence().startswith(
        "4 records were lost, 2 records are there more than once and 1 finding: melted in orders-0 and orders-1"
    )
    assert "3 of them, because broker 3 was elected" in found.text
    assert "1 of them: Retention ran." in found.text
    assert "No event explains 3 of them." in found.text


def test_what_informs_is_no_failure(tmp_path: Path) -> None:
    rows = [{**lost()[0], "kind": kind} for kind in ("expired", "unacknowledged", "foreign")]
    found = made(tmp_path, findings=rows, topics=page_kit.topics(0))
    assert found.sentence().startswith("None of 9\u202f000 acknowledged records is lost, doubled")
    assert "3 findings" not in found.text and "removed by retention" in found.text


def test_what_was_removed_is_counted_in_records(tmp_path: Path) -> None:
    rows = page_kit.topics(0)
    rows[0] |= {"expired": 700, "foreign": 0}
    rows[1] |= {"expired": 34, "foreign": 2}
    removed = [{**lost()[0], "kind": "expired", "partition": partition} for partition in (0, 1)]
    strange = [{**lost()[0], "kind": "foreign", "partition": 1}]
    found = made(tmp_path, findings=[*removed, *strange], topics=rows)
    assert "<b>734</b>removed by retention" in found.source and "<b>2</b>of no run" in found.source
    assert "734 are gone by retention" in found.sentence()
    assert "Findings <small>3</small>" in found.source


def test_internal_topics_come_last_and_names_keep_their_numbers(tmp_path: Path) -> None:
    name = "__transaction_state"
    rows = [{**row, "topic": name} for row in page_kit.timeline()] + page_kit.timeline()
    found = made(tmp_path, timeline=rows, findings=lost())
    drawn = found.source.partition("Leaders and in-sync")[2].partition('class="narrow"')[0]
    lanes = re.findall("<text[^>]*>((?:orders|__tr)[^<]*-[0-2])<", drawn)
    assert [name[:2] for name in lanes] == ["or", "or", "or", "__"], "alike ones share a lane"
    assert lanes[3].endswith("…-0")
    assert "in-sync replicas of orders-1 and 3 more partitions shrank" in found.text


def test_a_change_is_told_once(tmp_path: Path) -> None:
    rows = [leads(0, 1, 0, -2), in_sync(0, [1, 2], -2, 8.0), in_sync(0, [1], 8.0)]
    findings = [{**lost()[0], "time": at(each)} for each in (6.9, 9.6)]
    found = made(tmp_path, timeline=rows, findings=findings, latencies=page_kit.latencies())
    assert found.source.count('class="incident"') == 2
    assert found.text.count("The in-sync replicas of orders-0 shrank") == 1


def test_columns_without_anything_are_left_out(tmp_path: Path) -> None:
    found = made(tmp_path / "a", findings=lost())
    assert ">key</th>" in found.source and ">broker</th>" in found.source
    rows = [{**row, "key": None, "broker": None} for row in lost()]
    found = made(tmp_path / "b", findings=rows)
    assert ">key</th>" not in found.source and ">broker</th>" not in found.source
    assert found.source.count("<td") == found.source.count("<th ") * 3


# --- little, nothing, or too much


def test_empty_tables_are_a_page(tmp_path: Path) -> None:
    found = made(tmp_path, **{name: [] for name in TABLES})
    assert found.sentence() == "Nothing was found, but neither records nor replicas were compared."


@pytest.mark.parametrize("name", TABLES)
def test_every_table_may_be_missing(tmp_path: Path, name: str) -> None:
    folder = page_kit.disaster(tmp_path)
    (folder / name).rename(folder / f"_{name}")
    found = Page(page.write(folder))
    if name == "findings":
        assert found.sentence() == "Nothing is known: there is no table of findings."
    else:
        assert found.sentence().startswith("3 records were lost in orders-0")


@pytest.mark.parametrize("name", ["replicas", "timeline", "latencies", "findings"])
def test_one_table_alone_is_a_page(tmp_path: Path, name: str) -> None:
    rows = {"replicas": page_kit.replicas, "timeline": page_kit.timeline}
    rows |= {"latencies": page_kit.latencies, "findings": lost}
    found = made(tmp_path, **{name: rows[name]()})
    assert "No timeline" in found.text or name == "timeline"


def test_without_tables_there_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(KwireError, match=r"no tables of an audit \(findings, latencies, "):
        page.write(tmp_path)
    with pytest.raises(KwireError, match="no tables of an audit"):
        page.write(tmp_path / "nowhere")
    assert not list(tmp_path.iterdir())


def test_a_damaged_table_is_named(tmp_path: Path) -> None:
    part = page_kit.disaster(tmp_path) / "topics" / "part-00000.parquet"
    part.write_bytes(b"PAR1 no")
    with pytest.raises(KwireError, match=r"topics.*read"):
        page.write(tmp_path)


def test_nulls_everywhere_are_a_page(tmp_path: Path) -> None:
    empty: dict[str, list[page_kit.Row]] = {name: [{}] for name in TABLES}
    rows = {**empty, "findings": [{"kind": "lost"}], "timeline": [{"kind": "leader"}]}
    found = made(tmp_path, **rows)
    assert found.sentence().startswith("1 record was lost")


def test_hundreds_of_partitions_share_lanes(tmp_path: Path) -> None:
    rows = []
    for partition in range(300):
        died = 8 + partition / 10_000
        rows += [leads(partition, 1 + partition % 3, 0, 0, died)]
        rows += [interval("leaderless", partition, died, died + 0.2)]
        rows += [leads(partition, 1 + (partition + 1) % 3, 1, died + 0.2)]
        rows += [in_sync(partition, [1, 2, 3], 0)]
    found = made(tmp_path, timeline=rows, findings=[], latencies=page_kit.latencies())
    assert "300 partitions had no leader, orders-" in found.text
    assert found.source.count(">and 99 alike<") >= 3
    assert len(found.source) < 200_000


def test_a_page_of_very_much_is_small_and_says_what_it_leaves_out(tmp_path: Path) -> None:
    rows, names = [], [f"a-rather-long-name-of-a-topic-{n}" for n in range(3)]
    for partition in range(200):
        for tick in range(100):
            begin = tick / 5 + partition % 7 / 50
            row = {"topic": names[partition % 3], "epoch": tick, "broker": (tick + partition) % 9}
            rows.append({**leads(partition, 1, 0, begin, begin + 0.1), **row})
            rows.append({**in_sync(partition, [*range(tick % 9 + 1)], begin, begin + 0.1), **row})
    findings = [
        {
            **lost()[0],
            "partition": n % 200,
            "topic": names[n % 3],
            "offset": n,
            "time": at(n % 200 / 10),
        }
        for n in range(6_000)
    ]
    found = made(tmp_path, timeline=rows, findings=findings, latencies=page_kit.latencies())
    assert len(found.source) < 5_000_000
    assert f"These are the first {MAX_FINDINGS}; 5\u202f500 more are in" in found.text
    assert "are not drawn" in found.text
    assert "6\u202f000 records were lost in 600 partitions" in found.text or (
        "6\u202f000 records were lost in 200 partitions" in found.text
    )


# --- safe, whole, self-contained


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_text(tmp_path: Path, disaster: Page, name: str) -> None:
    def changed(rows: list[page_kit.Row]) -> list[page_kit.Row]:
        texts = ("topic", "producer", "cause", "detail", "epochs")
        return [{key: name if key in texts else row[key] for key in row} for row in rows]

    findings = [{**row, "key": name.encode()} for row in changed(lost())]
    found = made(
        tmp_path,
        findings=findings,
        latencies=changed(page_kit.latencies()),
        topics=changed(page_kit.topics()),
        replicas=changed(page_kit.replicas()),
        timeline=changed(page_kit.timeline()),
        lags=changed(page_kit.lags()),
    )
    known = {tag for tag, _ in disaster.elements}
    assert {tag for tag, _ in found.elements} <= known
    assert not re.search("[\x00-\x08\x0b-\x1f\u2028-\u202e]", found.source)
    assert name[:8].strip("\x00\x1b") in found.text or not name.isprintable()


def test_the_page_needs_nothing_else_and_no_script(disaster: Page) -> None:
    assert "http" not in disaster.source.replace("http-equiv", "")
    for tag, attributes in disaster.elements:
        assert tag not in ("script", "iframe", "object", "base", "form"), tag
        assert not attributes.keys() & {"src", "srcset", "action"}, (tag, attributes)
        assert not [key for key in attributes if key.startswith("on")]
    (policy,) = (a["content"] for _, a in disaster.elements if "http-equiv" in a)
    assert policy == "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    assert len(disaster.source) < 150_000
    ids = [attributes["id"] for _, attributes in disaster.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    used = set(re.findall(r"url\(#([^)]+)\)", disaster.source))
    assert used <= set(ids)  # type: ignore[operator]


def test_every_colour_follows_light_and_dark(disaster: Page) -> None:
    assert len(set(COLOURS.values())) == len(COLOURS)
    drawings = "".join(re.findall("<svg.*?</svg>", disaster.source, re.S))
    for shape in re.findall(r"<(?:path|text|rect) [^>]*>", drawings):
        for name, value in re.findall(r' (fill|stroke)="(#\w+)"', shape):
            assert re.search(f'class="[^"]*{name[0]}-', shape), (shape, value)
    for name in COLOURS:
        assert len(re.findall(rf"--{name}: ", disaster.source)) >= 3, name  # light, dark, print


def test_a_running_audit_says_so_and_loads_itself_again(tmp_path: Path) -> None:
    path = page.write(tmp_path, running=True)
    assert "So far: Nothing is known" in path.read_text()
    found = made(tmp_path, running=True, findings=[], topics=page_kit.topics(0))
    assert ("meta", {"http-equiv": "refresh", "content": "10"}) in found.elements
    assert "not its end" in found.text and found.sentence().startswith("So far: All")
    last = Page(page.write(tmp_path))
    assert "refresh" not in last.source and "So far" not in last.text
    assert sorted(each.name for each in tmp_path.iterdir()) == ["findings", "page.html", "topics"]


def test_a_page_that_cannot_be_written_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = page.write(write(tmp_path, findings=[]))
    before = path.read_bytes()

    def full(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(KwireError, match="No space left"):
        patch.setattr(Path, "replace", full)
        page.write(tmp_path)
    assert path.read_bytes() == before
    assert sorted(each.name for each in tmp_path.iterdir()) == ["findings", "page.html"]


def test_what_cannot_be_seen_is_shown() -> None:
    assert printable("a\x00b\x1b\u202e\ud800") == "a\\x00b\\x1b\\u202e\\ud800"
    assert printable("x" * 400) == "x" * 299 + "…"
    assert clip("orders-0", 1000) == "orders-0" and clip("orders-0", 4) == ""
    assert text_width(clip("orders-0" * 20, 100)) <= 100
    assert clip_name("orders" * 9 + "-17", 80).endswith("…-17")
    assert text_width(clip_name("orders" * 9 + "-17", 80)) <= 80
