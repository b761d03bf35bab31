"""What is done for Spark's Python workers."""

from __future__ import annotations

import importlib
import sys
import zipfile
from pathlib import Path
from zipimport import zipimporter

import pytest

from kwire.pipeline.workers import forget_zip_files


def test_zip_files_are_forgotten_and_still_imported_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "packed.zip")
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("kwire_test_one.py", "x = 1\n")
        packed.writestr("kwire_test_two.py", "x = 2\n")
    monkeypatch.syspath_prepend(path)
    assert importlib.import_module("kwire_test_one").x == 1
    assert isinstance(sys.path_importer_cache[path], zipimporter)
    forget_zip_files()
    assert path not in sys.path_importer_cache
    assert importlib.import_module("kwire_test_two").x == 2
