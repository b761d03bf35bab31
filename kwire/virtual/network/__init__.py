"""The network of a world in memory: links, connections, and the requests that arrive over them."""
