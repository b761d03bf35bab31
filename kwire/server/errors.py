"""Errors of a node's start and run: a one-line text for the user, and an exit status."""

from __future__ import annotations


class NodeError(Exception):
    """A failure at run time (exit status 1); the text is one line for the user."""


class SettingsError(Exception):
    """A refused option or configuration value (exit status 2); the text is one line for the user."""
