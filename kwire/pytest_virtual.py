"""Virtual time in pytest: the options, the fixture `world` and its seeds, the story of a seed that fails.

Imported when a test asks for `world`, when an option of virtual time is given, or when a test failed that used it.
"""

from __future__ import annotations

import inspect
import re
import traceback

import pytest

from kwire.errors import ConfigurationError, KwireError
from kwire.virtual import options, running
from kwire.virtual.errors import VirtualTimeError
from kwire.virtual.world import DAY_SECONDS, World

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from typing import Any

MARKER = "kwire_virtual"
SEED = "_kwire_seed"
_MARKER_OPTIONS = ("seeds", "weather", "limit", "real")
_WORLD: pytest.StashKey[World] = pytest.StashKey()
_HOOK = "pytest_asyncio_loop_factories"
_FOREIGN = re.compile(r"/kwire/|/_pytest/|/pluggy/|/asyncio/|/pytest_asyncio/")
_LINES = "(no event of a cluster was seen)"


def configure(config: pytest.Config) -> None:
    """Read the options of the command line. UsageError."""
    given = options.given
    given.seed = config.getoption("kwire_seed")
    given.seeds = config.getoption("kwire_seeds")
    if given.seeds is not None and given.seeds < 1:
        raise pytest.UsageError(f"--kwire-seeds: expected a number from 1, not {given.seeds}")
    without = config.getoption("kwire_without") or ""
    given.without = tuple(each.strip() for each in without.split(",") if each.strip())
    given.check_determinism = bool(config.getoption("kwire_check_determinism"))
    given.shrink = bool(config.getoption("kwire_shrink"))
    mode = config.getoption("kwire_mode") or config.getini("kwire_mode")
    given.is_real = config.getoption("kwire_time") == "real" or mode in (
        "external",
        "process",
        "docker",
    )
    if mode in ("process", "docker"):
        given.isolation = str(mode)
    if mode == "external":
        given.bootstrap = config.getoption("kwire_bootstrap") or config.getini("kwire_bootstrap")
        if not given.bootstrap:
            raise pytest.UsageError("--kwire-mode=external needs --kwire-bootstrap=HOST:PORT")


# --- the fixture `world`


def generate_seeds(metafunc: pytest.Metafunc) -> None:
    """Make a test of each seed of a test with the fixture `world`."""
    if SEED not in metafunc.fixturenames:
        return
    count = _settings(metafunc.definition).get("seeds", 1)
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        pytest.fail(
            f"marker {MARKER}: seeds: expected a number from 1, not {count!r}", pytrace=False
        )
    seeds = [0] if options.given.is_real else options.given.seeds_of(count)
    metafunc.parametrize(SEED, seeds, ids=[f"seed{seed}" for seed in seeds], indirect=True)
    manager = metafunc.config.pluginmanager
    if hasattr(metafunc.config.hook, _HOOK) and not manager.has_plugin(_LoopFactories.__name__):
        manager.register(_LoopFactories(metafunc.config), _LoopFactories.__name__)


def _settings(item: Any) -> dict[str, Any]:
    marker = item.get_closest_marker(MARKER)
    if marker is None:
        return {}
    unknown = sorted(marker.kwargs.keys() - set(_MARKER_OPTIONS))
    if marker.args or unknown:
        found = repr(marker.args[0] if marker.args else unknown[0])
        pytest.fail(
            f"marker {MARKER}: expected {', '.join(_MARKER_OPTIONS)}, not {found}", pytrace=False
        )
    return dict(marker.kwargs)


def _seed_of(item: Any) -> int:
    return int(item.callspec.params[SEED])


def world_of(item: Any) -> World:
    """The world of a test, made when it is first asked for."""
    if _WORLD not in item.stash:
        settings = _settings(item)
        try:
            item.stash[_WORLD] = World(
                _seed_of(item),
                weather=settings.get("weather"),
                limit=settings.get("limit", DAY_SECONDS),
                without=options.given.without,
            )
        except ConfigurationError as error:
            pytest.fail(f"marker {MARKER}: {error}", pytrace=False)
    found: World = item.stash[_WORLD]
    return found


class _LoopFactories:
    """Gives pytest-asyncio the loop of the world of a test. Registered with the first test that has one."""

    def __init__(self, config: pytest.Config) -> None:
        self._hook = getattr(config.hook, _HOOK)
        self._item: Any = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self._item = item
        if SEED in getattr(item, "fixturenames", ()) and type(item) is not pytest.Function:
            given = options.given
            for option, is_given in (
                ("--kwire-shrink", given.shrink),
                ("--kwire-check-determinism", given.check_determinism),
            ):
                if is_given:
                    item.warn(
                        pytest.PytestWarning(
                            f"{option} has no effect here: pytest-asyncio runs this test; @virtual.test has it"
                        )
                    )

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        """Let frozen hosts go on: their tasks are cancelled, and must end."""
        world = item.stash.get(_WORLD, None)
        if world is not None and not world.loop.is_closed():
            world.weather.stop()
            world.loop.thaw_all()

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_asyncio_loop_factories(
        self, config: pytest.Config, item: Any
    ) -> dict[str, Callable[[], asyncio.AbstractEventLoop]] | None:
        if SEED in getattr(item, "fixturenames", ()) and not options.given.is_real:
            return {"virtual": lambda: world_of(self._item).loop}
        if len(self._hook.get_hookimpls()) > 1:
            return None  # another plugin says which
        import asyncio

        return {"asyncio": asyncio.new_event_loop}


def run_test(item: Any) -> bool:
    """Run a coroutine test with the fixture `world` that no other plugin runs. False: it is none."""
    function = item.obj
    if not inspect.iscoroutinefunction(function) or type(item) is not pytest.Function:
        return False
    names = item._fixtureinfo.argnames
    arguments = {name: item.funcargs[name] for name in names}
    if "world" not in arguments:
        return False
    settings = _settings(item)

    def main(world: Any) -> Any:
        return function(**{**arguments, "world": world})

    if options.given.is_real:
        running._run_real(main, is_short=bool(settings.get("real")))
        return True
    runs = {"weather": settings.get("weather"), "limit": settings.get("limit", DAY_SECONDS)}
    running._run_seed(main, _seed_of(item), runs)
    return True


def end_world(item: Any) -> None:
    """The end of a test with the fixture `world`."""
    world = item.stash.get(_WORLD, None)
    if world is not None and world.loop.is_closed():
        world.links.close()


# --- the report


def add_story(item: Any, error: BaseException, report: pytest.TestReport) -> None:
    """Add to the report of a test that has failed: each seed's story, and how to replay it."""
    if isinstance(error, VirtualTimeError) and not _is_of_application(error):
        report.longrepr = "\n".join([f"{type(error).__name__}: {error}", *error.__notes__])
    found = [each for each in running.failed if each.error is error]
    running.failed.clear()
    world = item.stash.get(_WORLD, None)
    if not found and world is not None and world.requests.count:
        _take_stories(world)
        found = [running.outcome_of(world, error=error)]
    report.sections += [_section(each) for each in found]


def _is_of_application(error: VirtualTimeError) -> bool:
    """Whether it was raised where the application stands, rather than by the loop."""
    if not getattr(error, "__notes__", None):
        return True
    files = [str(frame.filename) for frame in traceback.extract_tb(error.__traceback__)]
    return any(not _FOREIGN.search(name) for name in files)


def _take_stories(world: World) -> None:
    """Ask the clusters that a fixture has left running what has happened."""
    loop = world.loop
    if loop.is_closed() or loop.is_running():
        return
    for cluster in world.clusters:
        if cluster.started:
            try:
                world.calm_now()
                loop.run_until_complete(world.remember(cluster))
            except KwireError:
                return


def _section(outcome: running.Outcome) -> tuple[str, str]:
    title = f"kwire: seed {outcome.seed}, {outcome.now:.3f} virtual seconds"
    replay = f"pytest {running.replay_options(outcome)} replays it"
    return title, "\n".join([*(outcome.story or [_LINES]), replay])
