"""The loop of a Python driver: a JSON request a line in, a JSON answer a line out.

Runs with whatever Python packages the client needs, so it imports nothing of this project. A
driver keeps polling its consumer (`idle`) while no request waits: a member must take part in
rebalances that another member causes.
"""

import base64
import json
import os
import select
import sys


def encode(data):
    return None if data is None else base64.b64encode(data).decode()


def decode(text):
    return None if text is None else base64.b64decode(text)


class Driver:
    """Methods named `do_<word>` answer requests; `idle` is called between them once `member`."""

    member = False

    def idle(self):
        """Polls the group member shortly."""

    def answer(self, line):
        request = json.loads(line)
        word = request.pop("do")
        try:
            return {"ok": getattr(self, f"do_{word}")(**request)}
        except Exception as error:
            import traceback

            traceback.print_exc()
            return {"error": f"{type(error).__name__}: {error}"}

    def run(self):
        out = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)  # what a client prints by itself must not look like an answer
        rest = b""
        while True:
            timeout = 0 if self.member else None
            if select.select([0], [], [], timeout)[0]:
                data = os.read(0, 1 << 20)
                if not data:
                    sys.exit(0)
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    out.write(json.dumps(self.answer(line)) + "\n")
                    out.flush()
            if self.member:
                self.idle()


class Member:
    """What a group member has seen: its assignment now, and every record since it joined."""

    def __init__(self):
        self.partitions = []
        self.records = []

    def seen(self):
        return {"partitions": sorted(self.partitions), "records": self.records}

    def satisfied(self, partitions, records):
        return len(self.partitions) == partitions and len(self.records) >= records
