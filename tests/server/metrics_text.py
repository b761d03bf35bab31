"""The text of `GET /metrics`, read by prometheus_client's parser and checked."""

from __future__ import annotations

import re
from collections import Counter

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families


class Scrape:
    """The samples of a text, which is checked as `promtool check metrics` does, and beyond."""

    def __init__(self, text: str) -> None:
        self.families = list(text_string_to_metric_families(text))
        self.samples: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        heads = re.findall("^# (HELP|TYPE) (\\S+) (.*)$", text, re.MULTILINE)
        assert max(Counter(head[:2] for head in heads).values()) == 1
        for kind, name, rest in heads:
            assert re.fullmatch("[a-z_:][a-z0-9_:]*", name) and rest.strip(), name
            assert kind == "HELP" or (rest == "counter") == name.endswith("_total"), name
        for family in self.families:
            self._check(family)

    def _check(self, family: Metric) -> None:
        for name, labels, value, *_ in family.samples:
            assert name in (family.name, f"{family.name}_total")
            for label in labels:
                assert re.fullmatch("[a-zA-Z_][a-zA-Z0-9_]*", label), label
                assert not label.startswith("__") and label not in ("le", "quantile", "job")
            key = name, frozenset(labels.items())
            assert key not in self.samples, key
            self.samples[key] = value

    def __call__(self, name: str, **labels: object) -> float:
        """The value of one sample, by all its labels."""
        wanted = frozenset((label, str(value)) for label, value in labels.items())
        return self.samples[name, wanted]

    def total(self, name: str, **labels: object) -> float:
        """The sum of a metric's samples that have these labels."""
        wanted = {(label, str(value)) for label, value in labels.items()}
        return sum(
            value for (each, of), value in self.samples.items() if each == name and wanted <= of
        )
