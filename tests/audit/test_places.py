"""Which replica stands for a topic, and where it begins and ends, by log directories alone."""

from __future__ import annotations

from pathlib import Path
from threading import Timer

import pytest

from kwire import Cluster
from kwire.audit import runs
from kwire.audit.places import Place, begin_now, of_cluster, of_logs
from kwire.errors import ConfigurationError
from kwire.pipeline import ledger
from kwire.protocol.record_builder import build_batch
from kwire.protocol.records import Record


def replica(root: Path, broker: int, count: int, epoch: int, cluster: str = "c-1") -> Path:
    """A broker's log directory with orders-0, which has so many records and this last leader epoch."""
    folder = root / f"broker-{broker}"
    partition = folder / "orders-0"
    partition.mkdir(parents=True)
    (folder / "meta.properties").write_text(
        f"version=1\nnode.id={broker}\ncluster.id={cluster}\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAA\n"
    )
    batches = [build_batch([Record(i, i, None, b"%d" % i)], base_offset=i) for i in range(count)]
    (partition / f"{0:020}.log").write_bytes(b"".join(batches))
    (partition / "leader-epoch-checkpoint").write_text(f"0\n1\n{epoch} 0\n")
    return folder


def test_the_replica_of_the_latest_epoch_stands_for_the_topic(tmp_path: Path) -> None:
    replica(tmp_path, 1, 9, epoch=0)  # was leader, is dead, has records that nobody else has
    second = replica(tmp_path, 2, 5, epoch=2)
    replica(tmp_path, 3, 4, epoch=2)
    found = of_logs([str(tmp_path)], ["orders"])
    assert found.cluster_id == "c-1"
    assert found.places == (Place("orders", 0, 0, 5, False, (str(second),)),)


def test_checkpoints_say_where_a_log_begins_and_that_it_is_compacted(tmp_path: Path) -> None:
    folder = replica(tmp_path, 1, 5, epoch=0)
    (folder / "log-start-offset-checkpoint").write_text("0\n1\norders 0 2\n")
    (folder / "cleaner-offset-checkpoint").write_text("0\n1\norders 0 3\n")
    (place,) = of_logs([str(folder)], ["orders"]).places
    assert place[:5] == ("orders", 0, 2, 5, True)


def test_what_retention_removes_while_logs_are_read_moves_their_begin(tmp_path: Path) -> None:
    folder = replica(tmp_path, 1, 5, epoch=0)
    (place,) = of_logs([str(folder)], ["orders"]).places
    assert begin_now([place], None) == [place]
    (folder / "log-start-offset-checkpoint").write_text("0\n1\norders 0 2\n")
    assert begin_now([place], None) == [place._replace(log_start=2)]
    (folder / "log-start-offset-checkpoint").write_text("0\n1\norders 0 9\n")
    assert begin_now([place], None) == [place._replace(log_start=5)]


def test_a_running_cluster_says_where_its_logs_begin_now() -> None:
    config = {"segment.bytes": "200", "retention.ms": "1"}
    with Cluster(1) as cluster:
        cluster.create_topic("orders", config=config)
        cluster.create_topic("calm")
        for number in range(4):
            cluster.produce("orders", b"%090d" % number)
            cluster.produce("calm", b"%d" % number)
        bootstrap = cluster.bootstrap_servers
        places = of_cluster(bootstrap, ["calm", "orders"]).places
        assert [place[:4] for place in places] == [("calm", 0, 0, 4), ("orders", 0, 0, 4)]
        cluster.apply_retention()
        calm, orders = begin_now(places, bootstrap)
        assert calm == places[0] and orders.log_start > 0
        cluster.delete_topic("orders")
        assert begin_now(places, bootstrap)[0] == places[0]
    assert begin_now(places, bootstrap) == list(places)


def test_a_cluster_is_asked_again_while_a_leader_dies() -> None:
    with Cluster(3) as cluster:
        cluster.create_topic("orders", assignment=[[1, 2, 3]])
        cluster.produce("orders", b"tea")
        cluster.wait_for(lambda c: c.partition("orders", 0).high_watermark == 1)
        third = cluster.bootstrap_servers.split(",")[2]
        with cluster.network.cut(1000, 3):  # broker 3 does not learn of another leader before
            cluster.broker(1).kill()
            healing = Timer(0.5, lambda: cluster.network.heal(1000, 3))
            healing.start()
            places = of_cluster(third, ["orders"]).places
            healing.join()
    assert [place[:4] for place in places] == [("orders", 0, 0, 1)]


def test_what_cannot_be_audited_is_one_line(tmp_path: Path) -> None:
    replica(tmp_path, 1, 1, epoch=0)
    with pytest.raises(ConfigurationError, match="topic order is in none of the log directories"):
        of_logs([str(tmp_path)], ["order"])
    replica(tmp_path, 2, 1, epoch=0, cluster="c-2")
    with pytest.raises(ConfigurationError, match="are of 2 clusters: "):
        of_logs([str(tmp_path)], ["orders"])
    with pytest.raises(ConfigurationError, match=r"^--bootstrap 127\.0\.0\.1:1: "):
        of_cluster("127.0.0.1:1", ["orders"])
    with pytest.raises(ConfigurationError, match=r"^--bootstrap: "):
        of_cluster("no port:x", ["orders"])


def ledger_of(folder: Path, topics: tuple[str, ...], *places: tuple[str, int | None]) -> Path:
    """A ledger with a record in each place."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    (folder / ledger.SENT).mkdir(parents=True)
    ledger.write_run(
        folder, ledger.Run("00c0ffee", "127.0.0.1:1", topics, "own", "plain", "all", 0)
    )
    rows = [
        {**dict.fromkeys(ledger.COLUMNS[ledger.SENT]), "topic": topic, "partition": partition}
        for topic, partition in places
    ]
    if rows:
        table = pa.Table.from_pylist(rows, ledger.schema(ledger.SENT))
        pq.write_table(table, folder / ledger.SENT / "part-0.parquet")
    return folder


def test_partitions_that_the_ledger_knows_and_nobody_has_are_audited(tmp_path: Path) -> None:
    replica(tmp_path / "data", 1, 2, epoch=0)
    topics = ("gone", "orders", "silent")
    folder = ledger_of(
        tmp_path / "ledger", topics, ("orders", 0), ("orders", 7), ("gone", 2), ("orders", None)
    )
    request = runs.Request(str(folder), (str(tmp_path / "data"),), None, ())
    places = runs.planned(request, tmp_path / "out").places
    assert [place[:4] for place in places] == [
        ("gone", 2, 0, 0),
        ("orders", 0, 0, 2),
        ("orders", 7, 0, 0),
        ("silent", 0, 0, 0),
    ]
    assert begin_now(places, None) == places


def test_no_topic_at_all_is_the_wrong_directory_unless_nothing_was_sent(tmp_path: Path) -> None:
    replica(tmp_path / "data", 1, 2, epoch=0)
    logs = (str(tmp_path / "data"),)
    sent = ledger_of(tmp_path / "sent", ("gone",), ("gone", 2))
    with pytest.raises(ConfigurationError, match=r"topic gone is in none of the log directories$"):
        runs.planned(runs.Request(str(sent), logs, None, ()), tmp_path / "out")
    empty = ledger_of(tmp_path / "empty", ("gone",))
    (place,) = runs.planned(runs.Request(str(empty), logs, None, ()), tmp_path / "out").places
    assert place[:4] == ("gone", 0, 0, 0)
    with pytest.raises(ConfigurationError, match=r"topic gone is in none of the log dir"):
        runs.planned(runs.Request(str(empty), logs, None, ("gone",)), tmp_path / "out")


def test_a_ledger_without_topics_needs_one(tmp_path: Path) -> None:
    folder, out = tmp_path / "ledger", tmp_path / "out"
    folder.mkdir()
    ledger.write_run(folder, ledger.Run("00c0ffee", "127.0.0.1:1", (), "own", "plain", "all", 0))
    with pytest.raises(ConfigurationError, match="names no topic: give one by --topic"):
        runs.planned(runs.Request(str(folder), (), None, ()), out)
    replica(tmp_path / "data", 1, 2, epoch=0)
    request = runs.Request(str(folder), (str(tmp_path / "data"),), None, ("orders",))
    assert [place[:4] for place in runs.planned(request, out).places] == [("orders", 0, 0, 2)]
