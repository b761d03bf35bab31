"""The definition language of messages: schema, compiler to Python code, reference interpreter.

`__all__` names the modules that other rooms may import.
"""

__all__ = ["parts", "primitives", "schema", "wire"]
