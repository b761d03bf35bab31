"""What the containers of a cluster are started with: their variables, listeners, certificates."""
