"""Rules of transactions in the simulator: what became of each, what readers see, offsets, coordinators."""
