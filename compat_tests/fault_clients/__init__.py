"""Clients of four libraries while faults are set, each as a child process.

A line in JSON is an attempt: `{act: "send", servers, topic, partition, value, count, idempotent}` writes a record with
acks=all and waits for the answer, `count` times, `{act: "read", servers, topic, partition}` reads from the start until
there is a record. The answer is
`{"ok": {"kind": …, "text": …}}`: "ok", or the kind of the error as a program sees it (an exception's class, a code's
name), and what it says.
"""
