"""Makes the harnesses of this folder importable (pytest runs with --import-mode=importlib)."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE / "log_dirs")]
