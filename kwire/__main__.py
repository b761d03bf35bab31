"""`kwire` and `python -m kwire`."""

import gc
import os
import signal
import sys


def main() -> None:
    """The command line. Ctrl-C ends it without a word until a command has something to stop."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.stderr is None:  # closed before Python started
        from kwire.launch.detach import open_standard_descriptors

        open_standard_descriptors()
    try:
        if sys.argv[1:2] == ["up"]:
            _start_quickly(sys.argv)
        from kwire.cli.main import main

        main()
    finally:
        gc.freeze()  # the last collection would visit every object, to free what the exit frees


def _start_quickly(arguments: list[str]) -> None:
    """Run `kwire up` if its options need no click, and exit."""
    gc.disable()  # modules are not garbage; the end of the start enables it
    _remove_ready_file(arguments)
    from kwire.cli.quick import quickly_parsed

    options = quickly_parsed(arguments[2:])
    if options is not None:
        from kwire.cli.placeholders import import_event_loop
        from kwire.cli.start import run

        import_event_loop()

        sys.exit(run(options, None))


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
