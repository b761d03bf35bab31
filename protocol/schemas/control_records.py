"""Control records in logs, and entries of the transaction index."""

from __future__ import annotations

from kwire.protocol.language.schema import (
    INT16,
    INT32,
    INT64,
    STRING,
    UINT16,
    UUID,
    Message,
    Struct,
    array,
    field,
)


class ControlRecordTypeSchema(Message, versions="0"):
    """The type in the key of a control record, after its version."""

    type: int = field(INT16)


class EndTxnMarker(Message, versions="0"):
    """The value of a transaction marker: the coordinator's epoch."""

    coordinator_epoch: int = field(INT32)


class AbortedTxn(Message, versions="0"):
    """An entry of a `.txnindex` file: an aborted transaction and its offsets; version before it as int16."""

    producer_id: int = field(INT64)
    first_offset: int = field(INT64)
    last_offset: int = field(INT64)
    last_stable_offset: int = field(INT64)


class Voter(Struct):
    voter_id: int = field(INT32)
    voter_directory_id: bytes = field(UUID, "1+")


class LeaderChangeMessage(Message, versions="0-1", flexible="0+"):
    """The first record of a leader's epoch in the metadata log."""

    version: int = field(INT16)
    leader_id: int = field(INT32)
    voters: list[Voter] = field(array(Voter))
    granting_voters: list[Voter] = field(array(Voter))


class SnapshotHeaderRecord(Message, versions="0", flexible="0+"):
    """The first record of a snapshot."""

    version: int = field(INT16)
    last_contained_log_timestamp: int = field(INT64)


class SnapshotFooterRecord(Message, versions="0", flexible="0+"):
    """The last record of a snapshot."""

    version: int = field(INT16)


class KRaftVersionRecord(Message, versions="0", flexible="0+"):
    """The finalized kraft.version."""

    version: int = field(INT16)
    kraft_version: int = field(INT16)


class Endpoint(Struct):
    name: str = field(STRING)
    host: str = field(STRING)
    port: int = field(UINT16)


class KRaftVersionFeature(Struct):
    min_supported_version: int = field(INT16)
    max_supported_version: int = field(INT16)


class VotersRecordVoter(Struct, kafka_name="Voter"):
    voter_id: int = field(INT32)
    voter_directory_id: bytes = field(UUID)
    endpoints: list[Endpoint] = field(array(Endpoint))
    kraft_version_feature: KRaftVersionFeature = field(KRaftVersionFeature)


class VotersRecord(Message, versions="0", flexible="0+"):
    """The set of voters (KIP-853)."""

    version: int = field(INT16)
    voters: list[VotersRecordVoter] = field(array(VotersRecordVoter))
