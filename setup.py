"""The one thing that pyproject.toml cannot say: on a package index, links of README.md are whole.

There README.md stands alone, so a link to docs/python.md leads to that page in the repository, as it
was at this version. URL and version come from where they are written once.
"""

import re
import tomllib
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
_LINK = re.compile(r"\]\((?![a-z]+:|#)([^)\s]+)\)")


def description() -> str:
    """README.md with whole links."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    init = (ROOT / "kwire" / "__init__.py").read_text("utf-8")
    (version,) = re.findall(r'^__version__ = "(.+)"$', init, re.MULTILINE)
    pages = f"{project['urls']['Repository']}/blob/v{version}"
    return _LINK.sub(rf"]({pages}/\1)", (ROOT / "README.md").read_text("utf-8"))


setup(long_description=description(), long_description_content_type="text/markdown")
