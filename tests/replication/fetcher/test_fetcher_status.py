"""What fetchers tell of themselves: lags, latencies, counts, roles and fetchers in the log."""

from __future__ import annotations

from follower_rig import Rig

from kwire.replication.replica.events import ReplicaEvent

T = ("t", 0)


def test_lag_in_time_begins_when_the_leader_is_ahead_and_ends_when_it_is_not():
    rig = Rig(settings={"replica.fetch.max.bytes": "10"})
    rig[1].write(*[(0, 5)] * 4)
    rig.lead(1, 0)
    assert rig[2].fetchers.metrics().lag_ms == {}
    rig.answer_one()
    rig._set_time(rig.clock.now_ms + 40)
    rig.answer_one()
    metrics = rig[2].fetchers.metrics()
    assert (metrics.consumer_lag, metrics.lag_ms) == ({T: 10}, {T: 40}), "since the first answer"
    rig.run()
    metrics = rig[2].fetchers.metrics()
    assert (metrics.consumer_lag, metrics.lag_ms) == ({T: 0}, {T: 0})


def test_a_leader_that_is_silent_makes_for_lag_in_time():
    rig = Rig(settings={"replica.fetch.wait.max.ms": "200"})
    rig.lead(1, 0)
    rig.wait(1000)
    assert rig[2].fetchers.metrics().lag_ms == {T: 0}, "idle is not late"
    rig.cut_off(1)
    rig.wait(3000)
    metrics = rig[2].fetchers.metrics()
    assert metrics.consumer_lag == {T: 0}
    assert 2600 <= metrics.lag_ms[T] <= 3000
    rig.heal()
    rig.wait(2000)
    assert rig[2].fetchers.metrics().lag_ms == {T: 0}


def test_answers_failures_and_latencies_are_counted():
    rig = Rig(settings={"replica.fetch.wait.max.ms": "200"})
    rig.lead(1, 0)
    rig.wait(1000)
    stats = rig[2].fetchers.fetchers[1, 0].stats
    assert stats.failures == 0 and 4 <= stats.answers <= stats.requests.total
    assert stats.latency_max_ms == 200 and 100 < stats.latency_ms <= 200, "the wait is part of it"
    rig.cut_off(1)
    rig.wait(1)
    assert stats.failures == 1
    answers = stats.answers
    rig.wait(3000)
    assert stats.failures > 1 and stats.answers == answers


def test_the_slowest_fetcher_is_the_least_rate():
    rig = Rig(settings={"replica.fetch.wait.max.ms": "200"})
    assert rig[2].fetchers.metrics().min_fetch_rate == 0.0
    rig.lead(1, 0)
    rig.wait(2000)
    metrics = rig[2].fetchers.metrics()
    assert metrics.min_fetch_rate == metrics.requests_per_second[1, 0] > 2


def test_a_fetcher_that_waits_for_nothing_is_counted_as_dead(monkeypatch):
    rig = Rig()
    rig.lead(1, 0)
    for ms in (0, 5, 600):
        rig.wait(ms)
        assert rig[2].fetchers.metrics().dead_thread_count == 0
    rig.cut_off(1)
    for ms in (1, 5, 2000):
        rig.wait(ms)
        assert rig[2].fetchers.metrics().dead_thread_count == 0, "it waits for its next try"
    fetcher = rig[2].fetchers.fetchers[1, 0]
    monkeypatch.setattr(type(fetcher), "advance", lambda self: None)  # as an internal error would
    rig.wait(2000)
    assert rig[2].fetchers.metrics().dead_thread_count == 1


def test_roles_and_fetchers_are_one_event_for_many_partitions():
    rig = Rig()
    rig.lead(1, 0, partitions=range(30))
    rig.run()
    logged = rig[2].logged
    (follows,) = logged.of(ReplicaEvent.ROLES_CHANGED)
    assert follows["leads"] is None and len(follows["followed"]) == 30
    assert follows["followed"][3] == "t-3 (broker 1, epoch 0)"
    (text,) = [each.text for each in logged.logged if each.event is ReplicaEvent.ROLES_CHANGED]
    assert text.startswith("new roles; follows t-0 (broker 1, epoch 0), t-1 (")
    assert text.endswith("t-4 (broker 1, epoch 0) and 25 more")
    (leads,) = rig[1].logged.of(ReplicaEvent.ROLES_CHANGED)
    assert leads["led"][3] == "t-3 (epoch 0)" and leads["follows"] is None
    assert logged.of(ReplicaEvent.FETCHER_STARTED) == [{"leader": 1, "fetcher_id": 0}]
    (added,) = logged.of(ReplicaEvent.FETCHER_PARTITIONS_ADDED)
    assert (added["leader"], len(added["names"])) == (1, 30)

    logged.clear()
    rig.lead(2, 1, partitions=range(30))
    rig.run()
    (leads,) = logged.of(ReplicaEvent.ROLES_CHANGED)
    assert len(leads["led"]) == 30
    (removed,) = logged.of(ReplicaEvent.FETCHER_PARTITIONS_REMOVED)
    assert (removed["leader"], len(removed["names"])) == (1, 30)
    assert logged.of(ReplicaEvent.FETCHER_STOPPED) == [{"leader": 1, "fetcher_id": 0}]
    assert logged.of(ReplicaEvent.FETCHER_PARTITIONS_ADDED) == []

    logged.clear()
    rig.lead(1, 0, topic="new", partitions=range(30), is_new=True)
    assert logged.of(ReplicaEvent.ROLES_CHANGED) == []
    (assigned,) = logged.of(ReplicaEvent.ROLES_ASSIGNED)
    assert len(assigned["followed"]) == 30
