"""Groups of verbs of `kwire ctl`."""
