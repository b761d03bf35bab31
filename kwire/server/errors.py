"""Why a node does not start: one line for the user, and the exit status that goes with it."""

from __future__ import annotations


class NodeError(Exception):
    """A failure at run time (exit status 1); the text is one line for the user."""


class SettingsError(Exception):
    """An option or a configuration value is refused (exit status 2); the text is one line for the user."""
