"""The files that `--tls` makes: where each is. No I/O."""

from __future__ import annotations

PASSWORD = "changeit"
"""Of all stores: Java's default, which everybody knows. What protects keys is the mode of their files."""
DIRECTORY = "tls"
"""Below the data directory."""


class Certificates:
    """The files in a directory. `mutual`: clients have to have the client's certificate."""

    __slots__ = ("directory", "mutual")

    def __init__(self, directory: str, *, mutual: bool) -> None:
        self.directory = directory
        self.mutual = mutual

    def _path(self, name: str) -> str:
        return f"{self.directory}/{name}"

    @property
    def ca(self) -> str:
        """The certificate of the authority, in PEM: what clients trust."""
        return self._path("ca.pem")

    @property
    def ca_key(self) -> str:
        """Its private key."""
        return self._path("ca-key.pem")

    @property
    def truststore(self) -> str:
        """The same certificate in stores of Java's; without the ending, .p12 or .jks."""
        return self._path("truststore")

    @property
    def client(self) -> str:
        """The key and the certificate of a client; without the ending, .pem, .p12 or .jks."""
        return self._path("client")

    def broker(self, broker_id: int) -> str:
        """The key and the certificate of a broker; without the ending."""
        return self._path(f"broker-{broker_id}")

    @property
    def java_properties(self) -> str:
        """The configuration of Java's clients, without bootstrap.servers."""
        return self._path("client.properties")

    @property
    def librdkafka_properties(self) -> str:
        """The configuration of librdkafka's clients, without bootstrap.servers."""
        return self._path("librdkafka.properties")
