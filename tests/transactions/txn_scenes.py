"""All scenes of transactions, in the order in which they were recorded."""

from __future__ import annotations

from collections.abc import Callable

import txn_scenes_broker
import txn_scenes_producers
import txn_scenes_readers
from txn_scene import SETTINGS, Scene, Talker

Scenes = tuple[Callable[[Scene], None], ...]

ALL, NEWEST = slice(None), slice(-1, None)
"""Profiles of a release in which scenes are played; in the newest only where that takes Kafka long."""

PARTS: tuple[tuple[dict[str, str], slice, Scenes], ...] = (
    (SETTINGS, ALL, (*txn_scenes_producers.SCENES, *txn_scenes_readers.SCENES)),
    (SETTINGS, NEWEST, txn_scenes_broker.WORN),
    (SETTINGS | txn_scenes_broker.EXPIRY, ALL, txn_scenes_broker.EXPIRING),
    (SETTINGS, NEWEST, txn_scenes_broker.LOADED),
)
"""Scenes that share a broker, with its settings."""


def play(talker: Talker, scene: Callable[[Scene], None], profile: str) -> list[str]:
    stage = Scene(talker, scene.__name__, profile)
    scene(stage)
    return stage.lines
