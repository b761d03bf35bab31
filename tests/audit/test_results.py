"""What an audit says on the terminal."""

from __future__ import annotations

from kwire.audit.results import MOST_LINES, Finding, failed, summary, table


def lost(number: int) -> Finding:
    return Finding(
        *("lost", "orders", 0, number, "p0", number, None, None, 1, 17),
        *("broker 3 was elected uncleanly", "acknowledged at 12:00"),
    )


def test_one_line_counts_records_where_a_finding_is_of_many() -> None:
    totals = {"acknowledged": 9000, "present": 8266, "expired": 734, "foreign": 0}
    line = summary({"expired": 2}, totals)
    assert line == "9,000 acknowledged, 8,266 present: 734 removed by retention"
    assert summary({}, totals).endswith(": nothing found")
    assert summary({"replica_differs": 1}, None).startswith("replicas: 1 ")
    assert failed({"lost": 1, "expired": 2}) and not failed({"expired": 2})


def test_a_table_is_cut_and_says_so() -> None:
    lines = table([lost(number) for number in range(30)], {"lost": 50, "expired": 2}).splitlines()
    assert len(lines) == MOST_LINES + 2
    assert lines[1].split("  ")[0] == "lost"
    assert lines[1].endswith("acknowledged at 12:00; broker 3 was elected uncleanly (event 17)")
    assert lines[-1] == "and 32 more: they are in the table findings"
