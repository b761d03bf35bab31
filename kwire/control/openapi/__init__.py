"""The OpenAPI document of the control API, made from the table that dispatches its requests.

Loaded with the first request for it.
"""
