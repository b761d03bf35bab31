"""`python -m kwire.docker run` or `start FILE`: the entry point of the image's scripts."""

import gc
import sys

from kwire.docker.container import main

if __name__ == "__main__":
    status = main(sys.argv[1:])
    gc.freeze()  # the last collection would visit every object, to free what the exit frees
    sys.exit(status)
