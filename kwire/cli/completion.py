"""`kwire completion`: completion scripts for shells."""

from __future__ import annotations

import click

from kwire.cli.common import example


@click.command(epilog=example('eval "$(kwire completion bash)"'))
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a completion script for a shell."""
    from click.shell_completion import get_completion_class

    completion_class = get_completion_class(shell)
    assert completion_class is not None
    click.echo(
        completion_class(context.find_root().command, {}, "kwire", "_KWIRE_COMPLETE").source()
    )
