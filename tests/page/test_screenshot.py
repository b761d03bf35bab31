"""The page of a cluster in trouble, light and dark, wide and narrow; `--write` makes the picture of the README.

Three brokers under load, one of which was killed, a delay, a fault and a group that lags."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import browser_kit
import pytest
from browser_kit import Browser, Up, kwire_up
from confluent_kafka import Consumer, Producer

from kwire.control.client import call

pytestmark = pytest.mark.timeout(120)

ROOT = Path(__file__).parents[2]
IMAGE = ROOT / "docs" / "page.png"
WIDTH, HEIGHT = 1280, 1020
TOPICS = {"clicks": 3, "orders": 4, "payments": 3}
ROWS = sum(TOPICS.values())


@contextmanager
def trouble() -> Iterator[Up]:
    topics = [word for name, count in TOPICS.items() for word in ("--topic", f"{name}:{count}:3")]
    settings = ("-c", "group.initial.rebalance.delay.ms=0", "-c", "default.replication.factor=3")
    with kwire_up("--brokers", "3", "--recent-requests", *topics, *settings) as up:
        stop = threading.Event()
        threads = [threading.Thread(target=produce, args=(up.bootstrap, stop))]
        for client, topics in (
            ("shop-1", ["orders"]),
            ("shop-2", ["orders"]),
            ("report", ["clicks", "payments"]),
        ):
            group = "reports" if client == "report" else "shop"
            threads.append(
                threading.Thread(target=consume, args=(up.bootstrap, group, client, topics, stop))
            )
        for each in threads:
            each.start()
        try:
            yield up
        finally:
            stop.set()
            for each in threads:
                each.join(30)


def produce(bootstrap: str, stop: threading.Event) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "client.id": "till", "linger.ms": 20})
    payer = Producer(
        {"bootstrap.servers": bootstrap, "client.id": "bank", "transactional.id": "bank-1"}
    )
    payer.init_transactions(20)
    payer.begin_transaction()
    payer.produce("payments", b'{"amount": 3}', partition=0)
    payer.poll(0)
    number = 0
    while not stop.is_set():
        for topic, count in TOPICS.items():
            producer.produce(topic, b'{"item": "tea"}', partition=number % count)
        number += 1
        producer.poll(0)
        stop.wait(0.015)
    producer.flush(10)
    payer.abort_transaction(20)


def consume(
    bootstrap: str, group: str, client: str, topics: list[str], stop: threading.Event
) -> None:
    settings = {"group.id": group, "client.id": client, "auto.commit.interval.ms": 500}
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest", **settings}
    )
    consumer.subscribe(topics)
    while not stop.is_set():
        consumer.poll(0.1)
        if group == "reports":
            stop.wait(0.03)
    consumer.close()


def stage(browser: Browser, up: Up) -> None:
    """Let happen what is to be seen, while the page is open."""
    browser.open(up.url, rows=ROWS)
    browser.until("document.querySelectorAll('.group h3').length === 2")
    browser.until(
        "[...document.querySelectorAll('.leads .end')].every(each => Number(each.innerText) > 60)"
    )
    call(up.url, "POST", "/v1/network/delays", {"a": 1, "b": 3, "milliseconds": 20})
    fault = {
        "api": "Produce",
        "error": "NOT_ENOUGH_REPLICAS",
        "client_id": "till",
        "topic": "payments",
    }
    call(up.url, "POST", "/v1/faults", {**fault, "times": 3})
    call(up.url, "POST", "/v1/brokers/2/kill")
    browser.until(
        "[...document.querySelectorAll('.row .isr')].every(each => each.textContent === '1,3')"
    )
    browser.until("document.querySelector('.figure.warn b').textContent !== '0'")
    browser.until(
        "/: NOT_ENOUGH_REPLICAS, 3 times; \\d+ requests hit/.test(document.body.innerText)"
    )


def picture(browser: Browser, width: int, height: int, *, dark: bool) -> bytes:
    browser.look(width, height, dark=dark)
    frames = "let n = 0; const f = () => ++n < 5 ? requestAnimationFrame(f) : arguments[0](n); f()"
    browser.driver.execute_async_script(frames)
    found: bytes = browser.driver.get_screenshot_as_png()
    return found


OVERLAPS = """
const boxes = [...document.querySelectorAll('.head button, .row > *, .tools > *, .figure, .card h2, .group h3 > *')]
  .map(each => [each, each.getBoundingClientRect()]).filter(([, box]) => box.width && box.height);
const found = [];
for (let a = 0; a < boxes.length; a++) for (let b = a + 1; b < boxes.length; b++) {
  const [one, r] = boxes[a], [two, s] = boxes[b];
  if (one.parentElement !== two.parentElement || one.contains(two)) continue;
  if (r.left < s.right - 1 && s.left < r.right - 1 && r.top < s.bottom - 1 && s.top < r.bottom - 1)
    found.push(one.textContent.slice(0, 30) + ' | ' + two.textContent.slice(0, 30));
}
return found;
"""


def test_the_page_is_drawn_in_every_size_and_scheme(browser: Browser) -> None:
    pytest.importorskip("PIL")
    from PIL import Image

    with trouble() as up:
        stage(browser, up)
        for width, height in ((1280, 800), (1920, 1080), (900, 1200)):
            for dark in (False, True):
                content = picture(browser, width, height, dark=dark)
                image: Any = Image.open(BytesIO(content)).convert("RGB")
                assert image.size == (width, height)
                colours = image.getcolors(1 << 24)
                seen = {f"#{r:02x}{g:02x}{b:02x}" for count, (r, g, b) in colours if count > 20}
                assert max(colours)[1] == ((0x12, 0x17, 0x1D) if dark else (255, 255, 255))
                assert {"#5bb4ee", "#4aa3de"} & seen if dark else "#0063a6" in seen, (
                    "the leaders' bars"
                )
                assert ("#ff8150" if dark else "#c23b00") in seen, "a broker that is down"
                assert browser.run(OVERLAPS) == [], (width, dark)
                wide = "document.documentElement.scrollWidth <= innerWidth"
                assert browser.value(wide), f"it fits into {width}"
        browser.leave()


def test_the_picture_in_the_readme_is_of_moderate_size() -> None:
    content = IMAGE.read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n" and len(content) < 200_000
    assert int.from_bytes(content[16:20], "big") == WIDTH
    assert "(docs/page.png)" in (ROOT / "README.md").read_text()


def write_image() -> None:
    from PIL import Image

    driver = browser_kit.start()
    browser = Browser(driver)
    try:
        with trouble() as up:
            browser.look(WIDTH, HEIGHT, dark=False)
            stage(browser, up)
            time.sleep(2)  # so that rates have settled
            content = picture(browser, WIDTH, HEIGHT, dark=False)
            browser.leave()
    finally:
        driver.quit()
    Image.open(BytesIO(content)).convert("RGB").quantize(256).save(IMAGE, optimize=True)
    print(IMAGE, IMAGE.stat().st_size)


if __name__ == "__main__" and "--write" in sys.argv:
    write_image()
