"""A word count through kwire: a text is produced, Spark counts it as it comes, the counts go back and are read.

    make spark                                          kwire and Spark embedded (local[*]), started here
    python spark_it/wordcount.py --isolation process    each broker in a process of its own
    spark-submit --jars … spark_it/wordcount.py --bootstrap HOST:PORT,…

The lines are produced by a stock client (confluent-kafka, idempotent, acks=all) while the query runs: the first
ones, and more whenever a batch has taken some. The query reads the topic of lines, keeps a count of each word and
writes every count that changed to the topic of counts, word as key, as an update stream; the last record of a key
is its count. A line tells of each batch. The stock client reads the counts, and they are held against what Python
counts in the same text. Exit status 0 when they are equal, 1 when not or when Spark fails, 2 when text or brokers
cannot be had, which is found out before Spark starts.
"""

# ruff: noqa: T201 (printing is what it is for)

import argparse
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from pydoc_data.topics import topics
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from spark_it import support

WORD = re.compile(r"[a-z]+")
BATCHES = 8
"""So many parts the text comes in, at least one line each."""
PATIENCE_S = 120.0
REACH_S = 5.0


class Refused(Exception):
    """What was given makes no sense; the text is one line."""


def text_lines(path: str | None, lines_max: int) -> list[str]:
    """The lines of a file, or of Python's own language reference, which is everywhere Python is. Refused."""
    try:
        text = Path(path).read_text(errors="replace") if path else "\n".join(topics.values())
    except OSError as error:
        raise Refused(f"--text {path}: {(error.strerror or str(error)).lower()}") from None
    lines = [line for line in text.splitlines() if line.strip()][:lines_max]
    if not any(WORD.search(line.lower()) for line in lines):
        raise Refused(f"--text {path}: there is no word in it")
    return lines


def reach(bootstrap: str) -> None:
    """Refused when no broker answers."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    quiet = {"log_level": 0, "error_cb": lambda _: None}
    try:
        AdminClient({"bootstrap.servers": bootstrap, **quiet}).list_topics(timeout=REACH_S)
    except KafkaException:
        raise Refused(
            f"--bootstrap {bootstrap}: no broker answers within {REACH_S:.0f} s"
        ) from None


@contextmanager
def session(submitted: bool) -> Iterator[Any]:
    """The session spark-submit has set up, or one inside this process."""
    if submitted:
        from pyspark.sql import SparkSession

        spark = SparkSession.builder.appName("kwire word count").getOrCreate()
        try:
            yield spark
        finally:
            spark.stop()
    else:
        from kwire.spark import running_session

        support.use_fetched_jars()
        with running_session({"spark.master": "local[*]"}) as spark:
            yield spark


def start_counting(spark: Any, bootstrap: str, lines: str, counts: str, checkpoint: Path) -> Any:
    """The running query: words of the topic of lines, counted into the topic of counts."""
    from pyspark.sql.functions import col, explode, lower, regexp_extract_all
    from pyspark.sql.functions import lit as literal

    source = {"kafka.bootstrap.servers": bootstrap, "subscribe": lines}
    frame = spark.readStream.format("kafka").options(**source, startingOffsets="earliest").load()
    text = lower(col("value").cast("string"))
    words = frame.select(explode(regexp_extract_all(text, literal("([a-z]+)"))).alias("key"))
    counted = words.groupBy("key").count().selectExpr("key", "string(count) as value")
    writer = counted.writeStream.outputMode("update").format("kafka")
    writer = writer.option("kafka.bootstrap.servers", bootstrap).option("topic", counts)
    writer = writer.option("checkpointLocation", str(checkpoint))
    return writer.trigger(processingTime="200 milliseconds").start()


def count(spark: Any, bootstrap: str, text: list[str], folder: Path) -> tuple[Counter[str], int]:
    """What the stock client reads: the words' counts, and how many updates they came in."""
    client = support.StockClient(bootstrap)
    suffix = f"{os.getpid()}-{time.time_ns() % 1_000_000}"  # a cluster may be counted on twice
    lines, counts = f"lines-{suffix}", f"counts-{suffix}"
    client.create(lines, 3)
    client.create(counts, 3)
    part = max(1, -(-len(text) // BATCHES))
    query = start_counting(spark, bootstrap, lines, counts, folder / "checkpoint")
    try:
        stream(client, lines, text, part, query)
        query.processAllAvailable()
    finally:
        query.stop()
    updates = client.read(counts)
    last = {message.key().decode(): int(message.value()) for message in updates}
    return Counter(last), len(updates)


def stream(client: support.StockClient, topic: str, text: list[str], part: int, query: Any) -> None:
    """Produce the text part by part, the next one when a batch has been taken, and tell of each batch."""
    sent = taken = 0
    last, deadline = -1, time.monotonic() + PATIENCE_S
    while taken < len(text):
        if sent < len(text) and sent - taken <= part:
            client.produce(topic, text[sent : sent + part], **{"enable.idempotence": True})
            sent = min(sent + part, len(text))
        for progress in query.recentProgress:
            if progress["batchId"] > last and progress["numInputRows"]:
                last, taken = progress["batchId"], taken + progress["numInputRows"]
                took_s = progress["durationMs"]["triggerExecution"] / 1000
                of = f"{taken:,} of {len(text):,} lines counted, {sent - taken:,} wait"
                print(f"  batch {last}: {progress['numInputRows']:,} lines in {took_s:.1f} s; {of}")
                sys.stdout.flush()
                deadline = time.monotonic() + PATIENCE_S
        if query.exception() is not None:
            raise query.exception()
        if time.monotonic() > deadline:
            raise TimeoutError(f"no batch for {PATIENCE_S:.0f} s")
        time.sleep(0.05)


def report(counted: Counter[str], expected: Counter[str], lines: int, updates: int) -> int:
    """Says the result to people; the exit status."""
    width = max(len(word) for word, _ in counted.most_common(10)) if counted else 1
    for word, number in counted.most_common(10):
        print(f"  {word:<{width}} {number:>6}")
    same = counted == expected
    words = f"{counted.total()} words in {lines} lines, {len(counted)} different, {updates} updates"
    print(f"{words}: {'the same as counted without Kafka' if same else 'NOT what was produced'}")
    for word in [word for word in {*counted, *expected} if counted[word] != expected[word]][:10]:
        print(f"  {word}: {counted[word]} counted, {expected[word]} produced")
    return 0 if same else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--bootstrap", help="brokers that run; three of kwire are started if not given"
    )
    parser.add_argument("--isolation", choices=("thread", "process"), default="thread")
    parser.add_argument("--text", help="file to count instead of Python's language reference")
    parser.add_argument("--lines", type=int, default=5000, help="at most so many lines, from 1 on")
    options = parser.parse_args()

    try:
        if options.lines < 1:
            raise Refused(f"--lines {options.lines}: expected a number from 1 on")
        text = text_lines(options.text, options.lines)
        if options.bootstrap:
            reach(options.bootstrap)
    except Refused as error:
        print(f"wordcount: {error}", file=sys.stderr)
        return 2
    expected = Counter(word for line in text for word in WORD.findall(line.lower()))
    # spark-submit has a gateway to its JVM ready before the script runs.
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="kwire-wordcount-")))
        bootstrap = options.bootstrap
        if not bootstrap:
            cluster = stack.enter_context(support.three_brokers(options.isolation))
            bootstrap = cluster.bootstrap_servers
        started = time.monotonic()
        spark = stack.enter_context(session(submitted))
        spark.sparkContext.setLogLevel("ERROR")
        how = "by spark-submit" if submitted else "embedded"
        where = f"{how}, {spark.sparkContext.master}"
        print(f"Spark {spark.version} {where}, brokers {bootstrap}", flush=True)
        counted, updates = count(spark, bootstrap, text, folder)
        print(f"counted in {time.monotonic() - started:.1f} s, start of Spark included")
        return report(counted, expected, len(text), updates)


if __name__ == "__main__":
    sys.exit(main())
