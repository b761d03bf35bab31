"""All scenes of transactions, in the order in which they were recorded."""

from __future__ import annotations

from collections.abc import Callable

import txn_scenes_producers
import txn_scenes_readers
from txn_scene import Scene, Talker

SCENES: tuple[Callable[[Scene], None], ...] = (
    *txn_scenes_producers.SCENES,
    *txn_scenes_readers.SCENES,
)


def play(talker: Talker, scene: Callable[[Scene], None], profile: str) -> list[str]:
    stage = Scene(talker, scene.__name__, profile)
    scene(stage)
    return stage.lines
