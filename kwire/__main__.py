"""`kwire` and `python -m kwire`."""

import gc
import os
import signal
import sys


def main() -> None:
    """The command line. Ctrl-C ends it without a word until a command has something to stop."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.argv[1:2] == ["up"]:
        _remove_ready_file(sys.argv)
    from kwire.cli.main import main

    try:
        main()
    finally:
        gc.freeze()  # the last collection would visit every object, to free what the exit frees


def _remove_ready_file(arguments: list[str]) -> None:
    """Remove the ready file of an earlier run that was killed, before the imports: those who poll
    would read it for as long as they take."""
    for option, value in zip(arguments, [*arguments[1:], ""], strict=True):
        name, _, given = option.partition("=")
        if name == "--ready-file" and (given or value):
            try:
                os.unlink(given or value)
            except OSError:
                continue


if __name__ == "__main__":
    main()
