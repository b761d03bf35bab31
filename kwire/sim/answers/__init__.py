"""Checks of what brokers answer to clients, in the step that sends it: a module for each kind of request."""
