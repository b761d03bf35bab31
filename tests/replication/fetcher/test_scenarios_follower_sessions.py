"""The follower's scenarios of the replication design, by number: sessions, links, fetchers, offsets (S40 to S45).

As test_scenarios_follower.py, which has S79 too.
"""

from __future__ import annotations

from follower_rig import Rig, same_logs


def test_S40_same_epoch_repeat():
    rig = Rig()
    rig.history([1, 2], (0, 3))
    rig.lead(1, 1)
    rig.run()
    before = rig[2].state()
    rig[2].fetchers.add_follower(rig[2].partition())
    assert rig[2].state() is before
    # Another epoch of the same leader: anew, at the log end.
    rig.lead(1, 4)
    after = rig[2].state()
    assert after is not before
    assert (after.fetch_offset, after.last_fetched_epoch, after.current_leader_epoch) == (3, 0, 4)


def test_S41_session():
    rig = Rig()
    rig.lead(1, 0, partitions=[1, 2, 3])
    rig.run()
    full = rig.requests()[0]
    assert (full.session_id, full.session_epoch) == (0, 0)
    assert [p.partition for p in full.topics[0].partitions] == [1, 2, 3]
    rig.wait(1000)
    idle = rig.requests()[2]
    assert idle.topics == [] and idle.session_epoch == 2 and idle.session_id > 0
    # A write to 2: only 2 is answered, and only 2 asked about anew.
    answers = []
    rig.tamper = lambda header, response: answers.append(response)
    rig[1].produce(1, index=2)
    rig.run()
    assert [p.partition_index for t in answers[-1].responses for p in t.partitions] == [2]
    (asked,) = rig.requests()[-1].topics[0].partitions
    assert (asked.partition, asked.fetch_offset, asked.last_fetched_epoch) == (2, 1, 0)
    # 3 is removed: forgotten.
    rig[2].fetchers.remove([("t", 3)])
    rig.wait(500)
    (forgotten,) = rig.requests()[-1].forgotten_topics_data
    assert forgotten.partitions == [3]
    assert set(rig[2].fetchers.fetchers[1, 0].session.partitions) == {("t", 1), ("t", 2)}


def test_S41_session_unknown_to_the_leader():
    rig = Rig()
    rig.lead(1, 0, partitions=[1, 2])
    rig.wait(600)
    cache = rig[1].services.fetch_sessions
    assert len(cache) == 1
    cache._sessions.clear()  # the leader has forgotten it, as after a restart
    rig[1].produce(1, index=1)
    rig.run()
    assert "fetch error 70" in rig.talk
    anew = [r for r in rig.requests() if r.session_epoch == 0][-1]
    assert anew.session_id == 0 and len(anew.topics[0].partitions) == 2
    assert same_logs(rig, index=1) == 1
    assert len(cache) == 0 or rig[2].fetchers.fetchers[1, 0].session.id


def test_S41_session_epoch_out_of_step():
    rig = Rig()
    rig.lead(1, 0)
    rig.wait(600)
    (session,) = rig[1].services.fetch_sessions._sessions.values()
    session.epoch += 5
    rig.wait(500)
    assert "fetch error 71" in rig.talk
    anew = [r for r in rig.requests() if r.session_epoch == 0][-1]
    assert anew.session_id == session.id  # which ends the old one
    rig.wait(500)
    assert len(rig[1].services.fetch_sessions) == 1


def test_S41_session_epoch_wraps():
    rig = Rig()
    rig.lead(1, 0)
    rig.wait(600)
    (session,) = rig[1].services.fetch_sessions._sessions.values()
    fetcher = rig[2].fetchers.fetchers[1, 0]
    rig[1].produce(1)
    rig.hold = True
    rig.run()
    session.epoch = fetcher.session.epoch = 0x7FFFFFFF - 1
    # The request under way counts as 2^31-2 now; 2^31-1 and 1 follow.
    session.epoch = 0x7FFFFFFF
    rig.hold = False
    rig.run()
    rig.wait(1000)
    assert [r.session_epoch for r in rig.requests()][-3:] == [0x7FFFFFFF, 1, 2]
    assert same_logs(rig) == 1


def test_S42_a_lost_link_ends_its_session():
    rig = Rig()
    rig.lead(1, 0)
    rig.wait(600)
    before = len(rig.requests())
    rig.cut_off(1)
    rig.heal()
    rig.wait(2000)
    assert [r.session_epoch for r in rig.requests()[before:]][:2] == [0, 1]
    assert not [line for line in rig.talk if line.startswith("fetch error")]


def test_S42_link_loss():
    rig = Rig(3)
    rig.lead(1, 0, topic="a")
    rig.lead(3, 0, topic="b")
    rig.run()
    rig[1].produce(1, topic="a")
    # When: the connection to 1 ends with the answer on its way.
    rig.hold = True
    rig.run()
    rig.hold = False
    rig.cut_off(1)
    rig.run()
    assert rig[2].ends("a") == (0, 0, 0)
    state = rig[2].state("a")
    assert state.delay_until_ms == rig.clock.now_ms + 1000
    assert rig[2].state("b").is_ready
    # Other leaders' partitions go on.
    rig[3].produce(1, topic="b")
    rig.run()
    assert same_logs(rig, 2, 3, topic="b") == 1
    rig.heal()
    rig.wait(999)
    assert rig[2].ends("a") == (0, 0, 0)
    rig.wait(1)
    assert same_logs(rig, 1, 2, topic="a") == 1
    anew = [h for n, h, r in rig.sent if n == 2 and h.api_key == 1 and r.session_epoch == 0]
    assert len(anew) >= 3  # two first sessions and a new one


def test_S43_fetcher_map():
    rig = Rig(4, settings={"num.replica.fetchers": "2"})
    for leader in (1, 2, 3):
        for number in range(3):
            rig.lead(
                leader, 0, topic=f"t{leader}{number}", partitions=range(4), replicas=[leader, 4]
            )
    rig.run()
    manager = rig[4].fetchers
    assert set(manager.fetchers) == {(leader, n) for leader in (1, 2, 3) for n in (0, 1)}
    partitions = [key for f in manager.fetchers.values() for key in f.states]
    assert len(partitions) == len(set(partitions)) == 36
    # The last partitions of leader 3 move away: its fetchers go with that order, and so do their connections.
    for number in range(3):
        rig.lead(1, 1, topic=f"t3{number}", partitions=range(4), replicas=[1, 4])
    assert set(manager.fetchers) == {(1, 0), (1, 1), (2, 0), (2, 1)}
    rig.run()
    assert not [wire for wire in rig.wires if wire[0] == 4 and wire[1] == 3]
    # More fetchers: every partition keeps its state.
    states = {key: state for f in manager.fetchers.values() for key, state in f.states.items()}
    rig[4].config.set_dynamic({"num.replica.fetchers": "4"}, {})
    after = {key: state for f in manager.fetchers.values() for key, state in f.states.items()}
    assert after.keys() == states.keys() and all(after[key] is states[key] for key in states)
    assert {number for _, number in manager.fetchers} == {0, 1, 2, 3}
    rig.wait(10)
    for leader, topic in ((1, "t10"), (2, "t22"), (1, "t31")):
        for index in range(4):
            rig[leader].produce(1, topic=topic, index=index)
            rig.run()
            assert same_logs(rig, leader, 4, topic=topic, index=index) == 1


def test_S44_lowered_high_watermark():
    rig = Rig(3)
    rig.history([1, 2, 3], (0, 5), (0, 5))
    rig[2].log().update_high_watermark(8)
    rig[1].log().update_high_watermark(6)
    rig.cut_off(3)  # in the ISR and silent: holds the high watermark back
    rig.lead(1, 1)
    rig.wait(500)
    assert rig[2].ends() == (0, 6, 10)
    rig.heal()
    rig.wait(3000)
    assert rig[1].ends() == rig[2].ends() == (0, 10, 10)


def test_S45_log_start_propagates():
    rig = Rig()
    rig.history([1, 2], (0, 3), (2, 4))
    rig.lead(1, 3)
    rig.wait(500)
    done = []
    rig[1].manager.delete_records(timeout_ms=5000, offsets={("t", 0): 5}, on_complete=done.append)
    rig.wait(500)
    assert rig[2].ends() == (5, 7, 7)
    assert rig[2].epochs() == [(2, 5)]
    # The leader hears of it with the next fetch, and so does who waits for the deletion.
    (result,) = done
    assert result["t", 0].low_watermark == 5
