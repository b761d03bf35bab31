"""PySpark's daemon, from which its Python workers are forked, with everything imported that kwire's sources need.

`spark.python.daemon.module=kwire.pipeline.daemon` saves each new worker the import of numpy, PyArrow and PySpark's own
modules: three of them plan a query (PythonPlannerRunner), before the tasks have theirs. Nothing imported here may start
a thread: workers are forks.
"""

from __future__ import annotations

import gc
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # its threads would be lost by the fork

from importlib import import_module

import pyspark.daemon  # reads sys.argv: the worker's module

_MODULES = (
    "pyspark.worker",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "kwire.pipeline.reading",
    "kwire.pipeline.source",
)


def main() -> None:
    for name in _MODULES:
        import_module(name)
    gc.freeze()  # what is shared by the forks stays shared
    pyspark.daemon.manager()


if __name__ == "__main__":
    main()
