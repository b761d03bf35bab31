"""The deterministic core: logs, replicas, partitions, controller. Does no I/O and reads no clock."""

if __name__ != "kwire.replication":  # one copy under one name, whatever is on sys.path
    raise ImportError("import this package as kwire.replication")
