"""`python -m kwire`."""

from kwire.cli import main

main()
