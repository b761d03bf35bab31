"""The weather of a world: what goes wrong by itself, drawn from the seed."""
