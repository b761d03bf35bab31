"""The definition language of messages: kinds, fields, the compiler to straight-line Python, the reference.

`__all__` names the modules that other rooms may import.
"""

__all__ = ["primitives", "schema", "wire"]
