"""Clients of many languages at listeners that ask for TLS, certificates and log-ins, each as a child process.

A line in JSON is an attempt, `{servers, ca, own, mechanism, user, password, topic, value}` (`own`: the client's
certificate and key in one file of PEM; Java has all of this again as `properties`): the client connects, writes `value`
to `topic` and reads it back. The answer is `{"ok": {"kind": …, "text": …}}`: "in", or the kind of the error as a
program sees it (an exception's class, a code's name), and what it says.
"""
