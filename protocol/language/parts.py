"""Decode and encode large messages in parts: generators of the cost of what they have done, in units.

An array of a request may have a million elements, of which each takes a microsecond or two; for
others to have their turn meanwhile there is a second kind of compiled function, a generator (see
`replication.core.work`). Results, limits and errors are those of the first kind. Compiled at first
use: only large messages pay.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

from kwire.protocol.language.decode_writer import compile_decoder
from kwire.protocol.language.encode_writer import compile_encoder
from kwire.protocol.language.primitives import Buffer
from kwire.protocol.language.schema import _join_pieces

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kwire.protocol.language.schema import Message

    _Message = TypeVar("_Message", bound=Message)

_decoders: dict[tuple[type[Message], int], Callable[..., Any]] = {}
_encoders: dict[tuple[type[Message], int], Callable[..., Any]] = {}


def decode_in_parts(
    cls: type[_Message], data: Buffer, position: int, version: int
) -> Generator[int, None, _Message]:
    """Decode a message from a position on. MalformedMessage. The version must exist."""
    decoder = _decoders.get((cls, version))
    if decoder is None:
        decoder = _decoders[cls, version] = compile_decoder(cls, version, in_parts=True)
    message: _Message = (yield from decoder(data, position))[0]
    return message


def encode_in_parts(message: Message, version: int) -> Generator[int, None, list[Buffer]]:
    """Encode into several buffers; records are not copied. KafkaError as Message.encode_parts."""
    cls = type(message)
    encoder = _encoders.get((cls, version))
    if encoder is None:
        encoder = _encoders[cls, version] = compile_encoder(cls, version, in_parts=True)
    chunks: list[Buffer] = []
    pieces: list[Buffer] = []
    records: list[int] = []
    yield from encoder(message, pieces, records, chunks)
    return chunks + _join_pieces(pieces, records)
