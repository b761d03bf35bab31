"""Log events of the drivers around the core: connections, start and end of nodes, SIGUSR1.

kwire/replication/core/events.py explains the notation. In the text format, fields that the sentence
does not contain follow it as key=value.
"""

from __future__ import annotations

from kwire.errors import INTERNAL_ERROR
from kwire.replication.core.events import DEBUG, ERROR, INFO, WARNING, EventType

_CONNECTION = ("node_id", "listener", "connection", "client", "principal")
_PEER = "peer connection ended: node {node}, {channel}: {detail}"
_SIDES = "{nodes} | {others}"


class NodeEvent:
    """The events of drivers. Names are never reused for something else."""

    # --- Nodes

    LISTENER_STARTED = EventType(
        INFO, "listening on {address}", "node_id", "listener", "advertised"
    )
    """A node accepts connections. `advertised`: the address that clients are given."""
    CERTIFICATES_MADE = EventType(INFO, "certificates are in {directory}", "option")
    """`--tls`, `--mtls`, or `KWIRE_TLS` in a container: clients trust `ca.pem` there."""
    TOKEN_KEYS_NOT_READ = EventType(
        WARNING, "the keys of signed tokens cannot be read from {url}: {detail}", "node_id"
    )
    """What `sasl.oauthbearer.jwks.endpoint.url` names does not answer, or with something else. The keys from before
    stay.
    To do: mend the server; a broker asks again after `sasl.oauthbearer.jwks.endpoint.refresh.ms`."""
    STORES_EXCHANGED = EventType(
        INFO, "new connections use the changed key stores", "node_id", "listener"
    )
    """Keys of a listener's key store or trust store were changed (AlterConfigs), or its file was, and has been read."""
    STORES_KEPT = EventType(
        WARNING,
        "the changed key stores cannot be used, the earlier ones are: {detail}",
        "node_id",
        "listener",
    )
    """A file of a key store or trust store was changed, and is wrong.
    To do: correct it, and give the broker its keys again (`kafka-configs --alter`)."""
    LOG_DIRS_LOADED = EventType(
        INFO, "log directory loaded", "log_dir", "cluster_id", "node_id", "logs"
    )
    """A standalone broker has loaded its data. `logs`: how many partitions."""
    CONTROLLER_AWAITED = EventType(INFO, "waiting for the controller at {address}", "node_id")
    """A broker cannot reach the controller yet: logged once, a second after the start.
    To do: start the controller; check `--controller`."""
    REGISTRATION_REFUSED = EventType(
        WARNING, "waiting: the controller at {address} answers {error}; {detail}", "node_id"
    )
    """The controller does not take up the broker. DUPLICATE_BROKER_REGISTRATION: a second broker of that id was
    started, or the first one has just been killed; then it passes by itself. CLUSTER_AUTHORIZATION_FAILED: its user is
    not in the `super.users` of the controller."""
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
    INTERNAL_ERROR = EventType(ERROR, INTERNAL_ERROR, "node_id", "peer")
    """A bug in kwire; a traceback follows. The connection, if it was one's, is closed; the node goes on."""
    UNUSED_DATA_FOUND = EventType(
        WARNING,
        "the data directory has data of brokers that are not started: {brokers}",
        "data_dir",
    )
    """`kwire up` has fewer brokers than its data directory.
    To do: raise `--brokers` where their replicas are wanted."""
    UNKNOWN_CONFIG_KEY = EventType(
        WARNING, "unknown configuration key {key}, ignored[; did you mean {suggestion}?]"
    )
    """Kafka has no such broker key."""
    CONFIG_WITHOUT_EFFECT = EventType(
        WARNING, "these configuration keys have no effect in kwire: {keys}[; {suggestion}]"
    )
    """Keys that were given and that kwire does not act on, with values other than Kafka's default. Keys that only tune
    a broker are not named. `keys`: as they were written, in a container the variables.
    To do: leave them out; `kwire config --unused` lists all keys without effect."""
    ACCESS_RULES_DOUBTFUL = EventType(WARNING, "access rules: {detail}")
    """With `--acl` or `authorizer.class.name`: every client is ANONYMOUS, or nobody can be the super user.
    To do: give `--sasl` and `--user`, or `--mtls`; correct `--super-user` (`super.users`)."""
    ISOLATION_WITHOUT_EFFECT = EventType(
        WARNING,
        "isolation process has no effect with a single broker, which is one process in any case",
    )
    """`kwire up --isolation process`, or `KWIRE_ISOLATION` in a container, of one broker.
    To do: leave it out, or start several: `--brokers 3`, in a container `KWIRE_BROKERS=3`."""

    NOT_REGISTERED = EventType(
        INFO, "kwire status, down and ctl will not find this cluster: {detail}"
    )
    """No directory for the registry of running clusters can be used.
    To do: set `KWIRE_RUNTIME_DIR`, or name addresses (`--bootstrap`, `--control`)."""

    # --- Connections

    CONNECTION_OPENED = EventType(DEBUG, "connection opened: {peer}", *_CONNECTION)
    """A client or another node has connected."""
    CONNECTION_CLOSED = EventType(DEBUG, "connection closed: {peer}: {detail}", *_CONNECTION)
    """A client has gone, was idle for too long, or the node stops."""
    CONNECTION_ABORTED = EventType(
        WARNING,
        "connection closed: {peer}: {detail}[; {repeated} more since the last such line]",
        *_CONNECTION,
    )
    """The node has closed a connection. `malformed request`: not Kafka's protocol, or not all of it; else a limit such
    as `max.connections` or `ulimit -n` is reached. Logged once a second for each kind of reason. `repeated`: how many
    more there were since the last such line; at level DEBUG each has its own. `authentication failed`: of a user."""
    CONNECTIONS_ABORTED = EventType(
        WARNING, "{repeated} more connections closed: {detail}", "node_id", "listener"
    )
    """Connections that the node has closed since the last CONNECTION_ABORTED of this kind, when no other followed
    within a minute."""
    FOREIGN_PROTOCOL = EventType(
        WARNING,
        "connection closed: {peer} speaks {protocol}[, as {repeated} connections before]: {detail}",
        "node_id",
        "listener",
    )
    """A client has sent a TLS handshake or an HTTP request to a Kafka listener: logged once a minute for each address.
    `repeated`: how many more there were since the last such line.
    To do: set `security.protocol=PLAINTEXT` in a client that speaks TLS; correct the port of one that speaks HTTP."""
    CONTROL_CLIENT_REFUSED = EventType(
        WARNING,
        "control API: {peer} speaks {protocol}[, as {repeated} connections before]: {detail}",
    )
    """A client that does not speak HTTP has connected to the control API: logged once a minute for each address.
    To do: give Kafka's clients the address of a broker."""
    NO_BROWSER = EventType(WARNING, "no browser was found to open {url}")
    """`kwire up --open` on a machine without one.
    To do: open the address elsewhere; the variable BROWSER names a browser."""
    PEER_CONNECTION_ENDED = EventType(DEBUG, _PEER, "node_id")
    """A node's own connection to another node has ended."""
    PEER_CONNECTION_ABORTED = EventType(WARNING, _PEER, "node_id")
    """The other node has not answered in `replica.socket.timeout.ms`, or has answered what makes no sense."""
    PEER_REFUSED = EventType(WARNING, _PEER, "node_id")
    """The other node does not let this one in, or this one does not trust it: a wrong secret, a certificate of another
    CA or another host. Logged once a minute for each node and reason; tried again within a second.
    To do: give all nodes the same `sasl.jaas.config`, and stores that trust each other; a certificate has to be for
    the host name that `advertised.listeners` has."""

    # --- Requests for faults and for other changes of a cluster, from Python, HTTP or the command line

    KILL_REQUESTED = EventType(INFO, "control: kill {role} {node_id}")
    """A node is about to be killed. `role`, here and below: broker or controller."""
    STOP_REQUESTED = EventType(INFO, "control: stop {role} {node_id}")
    """A node is about to be stopped in order. The end of the whole cluster is not logged."""
    START_REQUESTED = EventType(INFO, "control: start {role} {node_id}")
    """A node that was stopped or killed is about to start again."""
    PAUSE_REQUESTED = EventType(INFO, "control: pause {role} {node_id}")
    """A node is about to be suspended."""
    RESUME_REQUESTED = EventType(INFO, "control: resume {role} {node_id}")
    """A suspended node is about to go on."""
    CLOCK_ADVANCED = EventType(INFO, "control: advance the clock by {by}")
    """The time of all nodes is about to be moved on."""
    CUT_REQUESTED = EventType(INFO, f"control: cut {_SIDES}[, {{one_way}}]")
    """The network between two sets of nodes is about to be cut. `nodes`, `others`: their ids; `one_way`: only
    what the first ask of the others."""
    DELAY_REQUESTED = EventType(INFO, f"control: delay {_SIDES} by {{delay_ms}} ms[, {{one_way}}]")
    """Messages between two sets of nodes will be delayed."""
    HEAL_REQUESTED = EventType(INFO, "control: heal[ {nodes}][ | {others}][, {rules} only]")
    """Cuts and delays are about to end: all (`nodes` is null), all of `nodes`, or those between `nodes` and
    `others`. `rules`: cuts or delays, if the others stay."""
    FAULT_SET = EventType(INFO, "control: fault {fault} on requests: {rule}")
    """Requests are about to fail, to be late, to lose their answers. `fault`: its id; `rule`: which ones, and how."""
    FAULT_HIT = EventType(
        INFO, "fault {fault} hits {api} of {client_id}: {outcome}", "node_id", "version"
    )
    """A fault has hit its first request at a node: logged once for each fault and node. `outcome`: what happens to
    it."""
    FAULT_REMOVED = EventType(INFO, "control: fault {fault} is removed, requests hit: {hits}")
    """A fault on requests has ended. `hits`: at all nodes."""
    DISK_FAULT_SET = EventType(INFO, "control: disk of {role} {node_id}: {fault}")
    """A disk is about to fail, to be full or to be slow. `fault`: how, in words."""
    DISK_FAULT_HIT = EventType(
        WARNING, "a test has set that the disk fails: {operation} of {file}", "fault"
    )
    """A fault of a disk has hit its first operation: logged once for each fault. What Kafka does then follows.
    `fault`: its id."""
    DISK_HEALED = EventType(INFO, "control: heal the disk of {role} {node_id}")
    """All faults of a disk are about to end. A log directory that is offline stays so until its broker restarts."""
    ELECTION_REQUESTED = EventType(
        INFO, "control: elect[ {leader} for] {topic}-{partition}[, {unclean}]"
    )
    """`elect` was called. `leader`: this replica; null: by Kafka's rules. Its result is LEADER_ELECTED."""
    RESET_REQUESTED = EventType(INFO, "control: reset")
    """The cluster is about to be emptied, and its nodes and links repaired."""
    SNAPSHOT_SAVED = EventType(INFO, "control: snapshot {snapshot} saved", "size_bytes", "held_ms")
    """A snapshot was saved. `snapshot`: its name; `held_ms`: how long the nodes stood still for it."""
    SNAPSHOT_RESTORED = EventType(INFO, "control: restore snapshot {snapshot}")
    """All nodes are about to be killed, to start again with the data of a snapshot."""

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

    ADVERTISED = EventType(
        INFO,
        "advertised to clients: {addresses}[; if you publish another port, set {variable}]",
    )
    """A container is ready. `addresses`: where clients connect to, whatever address they have connected to first.
    To do: with `-p 19092:9092` set `KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:19092`."""
    UNKNOWN_VARIABLE = EventType(
        WARNING, "{variable}: unknown variable, ignored[; did you mean {suggestion}?]"
    )
    """An environment variable of a container begins with `KAFKA_` or `KWIRE_` and has no meaning."""
    LISTENER_INSIDE_ONLY = EventType(
        WARNING,
        "{listener} accepts connections from inside the container only: to publish its port bind 0.0.0.0",
    )
    """A container's listener is bound to a loopback address.
    To do: `KAFKA_LISTENERS=PLAINTEXT://0.0.0.0:9092`."""
    QUORUM_STANDBY = EventType(INFO, "standing by: the first voter is the controller", "voters")
    """A container is a controller only, and not the first of `controller.quorum.voters`."""
    TOPICS_DELAYED = EventType(WARNING, "topics not created yet: {detail}")
    """The topics of `KAFKA_CREATE_TOPICS` cannot be created yet; tried again."""
    TOPIC_REFUSED = EventType(ERROR, "topic {topic} refused: {detail}")
    """A topic of `KAFKA_CREATE_TOPICS` cannot be created.
    To do: correct its definition."""
