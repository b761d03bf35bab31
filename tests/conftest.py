"""Makes helpers of several folders importable everywhere (pytest runs with --import-mode=importlib)."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE / "server")]
