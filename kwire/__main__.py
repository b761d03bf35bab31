"""`kwire` and `python -m kwire`."""

import signal


def main() -> None:
    """The command line. Ctrl-C ends it without a word until a command has something to stop."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from kwire.cli.main import main

    main()


if __name__ == "__main__":
    main()
