"""`kwire sim`: simulates clusters under faults."""

from __future__ import annotations

import sys

import click

from kwire.cli.common import example, fail, key_value


@click.command(epilog=example("kwire sim --seeds 1-1000"))
@click.option("--seeds", default="1-100", show_default=True, help="7, 1-1000, or 3,5,10-12.")
@click.option(
    "--steps",
    type=click.IntRange(1),
    default=4000,
    show_default=True,
    help="How many steps of nodes the faulty part of a run has.",
)
@click.option("--trace", is_flag=True, help="Print every message and every change of a partition.")
@click.option(
    "--shrink",
    "shrink_seed",
    type=click.IntRange(0),
    metavar="SEED",
    help="Print the smallest plan that fails as this seed does, as a test.",
)
@click.option(
    "--reached",
    "list_reached",
    is_flag=True,
    help="Print each state that the seeds have reached, with the number of seeds.",
)
@click.option(
    "-c",
    "overrides",
    metavar="KEY=VALUE",
    multiple=True,
    callback=key_value,
    help="One configuration key of every node; repeatable.",
)
def sim(
    seeds: str,
    steps: int,
    trace: bool,
    shrink_seed: int | None,
    list_reached: bool,
    overrides: dict[str, str],
) -> None:
    """Simulate clusters under faults, check the invariants of replication.

    One line for each seed that fails, and how to replay it."""
    from time import perf_counter

    from kwire.sim.command import parse_seeds, run_seeds, shrink_and_print

    if shrink_seed is not None:
        fails = shrink_and_print(shrink_seed, steps=steps, config=overrides, write=click.echo)
        sys.exit(1 if fails else 0)
    try:
        numbers = parse_seeds(seeds)
    except ValueError as error:
        fail(2, f"kwire sim: {error}")
    failed = run_seeds(
        numbers,
        steps=steps,
        trace=trace,
        config=overrides,
        list_reached=list_reached,
        write=click.echo,
        now_seconds=perf_counter,
    )
    sys.exit(1 if failed else 0)
