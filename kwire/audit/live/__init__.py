"""The audit of a run that goes on."""
