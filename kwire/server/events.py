"""Log events of the drivers around the core: connections, start and end of nodes, SIGUSR1.

kwire/replication/core/events.py explains the notation. In the text format, fields that the sentence
does not contain follow it as key=value.
"""

from __future__ import annotations

from kwire.errors import INTERNAL_ERROR
from kwire.replication.core.events import DEBUG, ERROR, INFO, WARNING, EventType

_CONNECTION = ("peer", "listener", "connection", "client")


class NodeEvent:
    """The events of drivers. Names are never reused for something else."""

    # --- Nodes

    LISTENER_STARTED = EventType(INFO, "listening", "node_id", "listener", "address", "advertised")
    """A node accepts connections. `advertised`: the address that clients are given."""
    LOG_DIRS_LOADED = EventType(
        INFO, "log directory loaded", "log_dir", "cluster_id", "node_id", "logs"
    )
    """A standalone broker has loaded its data. `logs`: how many partitions."""
    CONTROLLER_AWAITED = EventType(INFO, "waiting for the controller at {address}", "node_id")
    """A broker cannot reach the controller yet: logged once, a second after the start.
    To do: start the controller; check `--controller`."""
    REGISTRATION_REFUSED = EventType(
        WARNING,
        "waiting: the controller at {address} answers {error}; is another broker {node_id} alive?",
    )
    """The controller does not take up the broker. DUPLICATE_BROKER_REGISTRATION: a second broker of that id was
    started, or the first one has just been killed; then it passes by itself."""
    NODE_STOPPED = EventType(INFO, "stopped", "node_id")
    """A clean stop is complete."""
    NODE_DIED = EventType(ERROR, "{node} has ended ({detail}); {others}", "node_id")
    """A node of `kwire up` is gone that nobody has stopped.
    To do: see [clusters.md](clusters.md) for how to start it again."""
    NODE_KILLED = EventType(WARNING, "node does not stop, killed", "node_id")
    """A process did not end in time after SIGTERM."""
    BROKER_HALTED = EventType(ERROR, "the broker halts: {detail}", "node_id")
    """All log directories have failed, or the one with the controller's journal.
    To do: repair the disk and start the broker again."""
    INTERNAL_ERROR = EventType(ERROR, INTERNAL_ERROR, "peer")
    """A bug in kwire; a traceback follows. The connection, if it was one's, is closed; the node goes on."""
    UNUSED_DATA_FOUND = EventType(
        WARNING,
        "the data directory has data of brokers that are not started: {brokers}",
        "data_dir",
    )
    """`kwire up` has fewer brokers than its data directory.
    To do: raise `--brokers` where their replicas are wanted."""
    UNKNOWN_CONFIG_KEY = EventType(
        WARNING, "unknown configuration key, ignored[; did you mean {suggestion}?]", "key"
    )
    """Kafka has no such broker key."""

    # --- Connections

    CONNECTION_OPENED = EventType(DEBUG, "connection opened", *_CONNECTION)
    """A client or another node has connected."""
    CONNECTION_CLOSED = EventType(DEBUG, "connection closed", *_CONNECTION, "detail")
    """A client has gone, was idle for too long, or the node stops."""
    CONNECTION_ABORTED = EventType(WARNING, "connection closed", *_CONNECTION, "detail")
    """The node has closed a connection. `malformed request`: not Kafka's protocol, or not all of it; else a limit such
    as `max.connections` is reached."""
    PEER_CONNECTION_ENDED = EventType(DEBUG, "peer connection ended", "node", "channel", "detail")
    """A node's own connection to another node has ended."""
    PEER_CONNECTION_ABORTED = EventType(
        WARNING, "peer connection ended", "node", "channel", "detail"
    )
    """The other node has not answered in `replica.socket.timeout.ms`, or has answered what makes no sense."""

    # --- SIGUSR1

    NODE_STATUS = EventType(INFO, "{text}", "node_id", "counts", "partition", "fetcher", "failed")
    """A line of what a node knows of itself: the text, and as JSON one of its other fields."""
    NODE_STARTING = EventType(INFO, "is starting", "node_id")
    """The node cannot tell more yet."""
    NODE_NOT_RUNNING = EventType(INFO, "does not run", "node_id")
    """A node of `kwire up` that was stopped or has died."""
    NODE_NOT_ANSWERING = EventType(INFO, "does not answer", "node_id")
    """A node of `kwire up` that stands still."""

    # --- The image

    QUORUM_STANDBY = EventType(INFO, "standing by: the first voter is the controller", "voters")
    """A container is a controller only, and not the first of `controller.quorum.voters`."""
    TOPICS_DELAYED = EventType(WARNING, "topics not created yet", "detail")
    """The topics of `KAFKA_CREATE_TOPICS` cannot be created yet; tried again."""
    TOPIC_REFUSED = EventType(ERROR, "topic refused", "topic", "detail")
    """A topic of `KAFKA_CREATE_TOPICS` cannot be created.
    To do: correct its definition."""
