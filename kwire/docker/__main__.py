"""`python -m kwire.docker run`, or `start FILE`: what the image's scripts end in."""

import sys

from kwire.docker.container import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
