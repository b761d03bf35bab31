"""`python -m kwire.docker run` or `start FILE`: the entry point of the image's scripts."""

import sys

from kwire.docker.container import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
