"""Kafka's wire formats: messages, headers, record batches, error codes. Independent of the rest."""

if __name__ != "kwire.protocol":  # one copy under one name, whatever is on sys.path
    raise ImportError("import this package as kwire.protocol")
