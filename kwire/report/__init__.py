"""The report of a cluster: a JSON model of what happened and how it stands, and one HTML page of it.

`__all__` names the modules that other rooms may import.
"""

__all__ = [
    "files",
    "marks",
    "model",
    "page",
    "state",
    "words",
]
