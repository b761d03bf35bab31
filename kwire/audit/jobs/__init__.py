"""The topic audit's jobs: short functions of DataFrames, which need a session but no ledger, topic or file."""
