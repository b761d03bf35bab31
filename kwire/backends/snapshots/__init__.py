"""`snapshot`, `restore` and `fork` of a cluster that was started here."""
