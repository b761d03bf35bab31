"""Runs `kwire up` from its parsed options; without click, whose import is a tenth of a start."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kwire.control.routes import Handler
    from kwire.launch.detach import Detached
    from kwire.launch.node_runner import NodeRunner
    from kwire.launch.spec import ClusterSpec
    from kwire.launch.supervisor import Supervisor


def run(options: dict[str, Any], detached: Detached | None) -> int:
    """Run until a signal; return the exit status."""
    from kwire.launch.configuration import cluster_spec
    from kwire.launch.up import Surroundings, run_up
    from kwire.server import logs

    def make_control(running: Supervisor | NodeRunner) -> Handler:
        from kwire.aio import Cluster
        from kwire.control.routes import cluster_handler

        return cluster_handler(Cluster.of(running))

    level, as_json = options["log_level"], options["log_json"]
    log, in_cluster = None if detached is None else detached.log, options["brokers"] > 1
    logs.configure(level, as_json, log, in_cluster=in_cluster, is_quiet=True)
    if detached is not None:
        detached.show_warnings()
    surroundings = Surroundings(
        topics=options.pop("topics"),
        ready_file=options.pop("ready_file"),
        health_file=os.environ.get("KWIRE_HEALTH_FILE"),
        control_host=options.pop("control_host"),
        control_port=options.pop("control_port"),
        make_control=make_control,
        announce=None if detached is None else detached.announce,
        log_path=None if detached is None else detached.log_path,
        opens_page=options.pop("open_page"),
    )

    def make_spec() -> ClusterSpec:
        spec = cluster_spec(**options)
        if surroundings.health_file is not None:  # in a container
            from kwire.docker.container import warn_of_loopback

            warn_of_loopback(spec.node.values)
        return spec

    # Nothing is left after it to be cleaned up that the kernel does not clean up faster.
    return run_up(make_spec, surroundings)
