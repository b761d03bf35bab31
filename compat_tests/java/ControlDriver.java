import java.io.DataInputStream;
import java.io.IOException;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.message.ApiVersionsResponseData.ApiVersion;
import org.apache.kafka.common.message.LeaderAndIsrRequestData.LeaderAndIsrPartitionState;
import org.apache.kafka.common.message.LeaderAndIsrResponseDataJsonConverter;
import org.apache.kafka.common.message.ListOffsetsRequestData.ListOffsetsPartition;
import org.apache.kafka.common.message.ListOffsetsRequestData.ListOffsetsTopic;
import org.apache.kafka.common.message.ListOffsetsResponseData.ListOffsetsPartitionResponse;
import org.apache.kafka.common.message.MetadataRequestData;
import org.apache.kafka.common.message.MetadataResponseData.MetadataResponseBroker;
import org.apache.kafka.common.message.MetadataResponseData.MetadataResponsePartition;
import org.apache.kafka.common.message.MetadataResponseData.MetadataResponseTopic;
import org.apache.kafka.common.message.OffsetForLeaderEpochRequestData.OffsetForLeaderPartition;
import org.apache.kafka.common.message.OffsetForLeaderEpochRequestData.OffsetForLeaderTopic;
import org.apache.kafka.common.message.OffsetForLeaderEpochRequestData.OffsetForLeaderTopicCollection;
import org.apache.kafka.common.message.OffsetForLeaderEpochResponseData.EpochEndOffset;
import org.apache.kafka.common.message.ProduceRequestData;
import org.apache.kafka.common.message.ProduceResponseData.PartitionProduceResponse;
import org.apache.kafka.common.message.StopReplicaRequestData.StopReplicaPartitionState;
import org.apache.kafka.common.message.StopReplicaRequestData.StopReplicaTopicState;
import org.apache.kafka.common.message.StopReplicaResponseDataJsonConverter;
import org.apache.kafka.common.message.UpdateMetadataRequestData.UpdateMetadataBroker;
import org.apache.kafka.common.message.UpdateMetadataRequestData.UpdateMetadataEndpoint;
import org.apache.kafka.common.message.UpdateMetadataRequestData.UpdateMetadataPartitionState;
import org.apache.kafka.common.message.UpdateMetadataResponseDataJsonConverter;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.SimpleRecord;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.AbstractResponse;
import org.apache.kafka.common.requests.ApiVersionsRequest;
import org.apache.kafka.common.requests.ApiVersionsResponse;
import org.apache.kafka.common.requests.FetchRequest;
import org.apache.kafka.common.requests.FetchResponse;
import org.apache.kafka.common.requests.LeaderAndIsrRequest;
import org.apache.kafka.common.requests.LeaderAndIsrResponse;
import org.apache.kafka.common.requests.ListOffsetsRequest;
import org.apache.kafka.common.requests.ListOffsetsResponse;
import org.apache.kafka.common.requests.MetadataRequest;
import org.apache.kafka.common.requests.MetadataResponse;
import org.apache.kafka.common.requests.OffsetsForLeaderEpochRequest;
import org.apache.kafka.common.requests.OffsetsForLeaderEpochResponse;
import org.apache.kafka.common.requests.ProduceRequest;
import org.apache.kafka.common.requests.ProduceResponse;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.requests.StopReplicaRequest;
import org.apache.kafka.common.requests.StopReplicaResponse;
import org.apache.kafka.common.requests.UpdateMetadataRequest;
import org.apache.kafka.common.requests.UpdateMetadataResponse;
import org.apache.kafka.common.security.auth.SecurityProtocol;

/**
 * Plays the controller of a broker over a plain socket, with Kafka's own request classes, and asks the broker in
 * between what became of it. Prints one line of JSON a step: {"step": …, "answer": …}.
 *
 * Arguments: port, broker id, broker epoch. The broker's controller epoch so far must be below 100. Topic ids, epochs
 * and offsets are fixed, nothing in the answers depends on the clock or on ports: two brokers can be compared.
 */
public final class ControlDriver {
    private static final int CONTROLLER = 2;
    private static final ListenerName LISTENER = new ListenerName("PLAINTEXT");
    private static final short NEWEST = -1;

    private final int port;
    private final int self;
    private final long brokerEpoch;
    private final Map<String, Uuid> ids = new HashMap<>();
    private Socket socket;
    private DataInputStream input;
    private int correlation = 0;
    private int epoch = 100; // the controller's

    private ControlDriver(int port, int self, long brokerEpoch) throws IOException {
        this.port = port;
        this.self = self;
        this.brokerEpoch = brokerEpoch;
        connect();
    }

    public static void main(String[] arguments) throws Exception {
        ControlDriver driver = new ControlDriver(
            Integer.parseInt(arguments[0]), Integer.parseInt(arguments[1]), Long.parseLong(arguments[2]));
        driver.run();
        System.out.flush();
        System.exit(0);
    }

    private void run() throws IOException {
        apiVersions();
        epochsOfTheWholeRequest();
        epochsOfPartitions();
        topicIds();
        leadersThatAreNot();
        leaderEpochHistory();
        stopReplica();
        metadata();
        oldVersions();
        newController();
    }

    // -- the script ---------------------------------------------------------------------------------------------

    private void apiVersions() throws IOException {
        ApiVersionsResponse response = (ApiVersionsResponse) ask(new ApiVersionsRequest.Builder().build((short) 3));
        Map<String, String> ranges = new TreeMap<>();
        for (ApiVersion version : response.data().apiKeys()) {
            if (version.apiKey() >= 4 && version.apiKey() <= 6) {
                ranges.put(ApiKeys.forId(version.apiKey()).name, version.minVersion() + "-" + version.maxVersion());
            }
        }
        tell("ApiVersions names what a controller asks", ranges.toString());
    }

    private void epochsOfTheWholeRequest() throws IOException {
        order("LeaderAndIsr before any UpdateMetadata: a leader", leads("a", 0, 1, self));
        order("LeaderAndIsr before any UpdateMetadata: its leader is not known", follows("a", 1, 1, 2));
        alive("UpdateMetadata: three brokers live", 1, 2, 3);
        probe("a", 0, 1);
        probe("a", 1, 1);
        order("LeaderAndIsr, older broker epoch", brokerEpoch - 1, epoch, NEWEST,
            leads("a", 0, 2, self), leads("b", 0, 2, self));
        order("LeaderAndIsr, older controller epoch", brokerEpoch, epoch - 1, NEWEST,
            leads("a", 0, 2, self), leads("b", 0, 2, self));
        order("LeaderAndIsr, no broker epoch", -1, epoch, NEWEST, leads("a", 0, 2, self));
        order("LeaderAndIsr, newer broker epoch", brokerEpoch + 1, epoch, NEWEST, leads("a", 0, 3, self));
        order("LeaderAndIsr, no partitions", brokerEpoch, epoch, NEWEST);
        stop("StopReplica, older broker epoch", brokerEpoch - 1, epoch, NEWEST, stopped("a", 0, 3, true));
        stop("StopReplica, older controller epoch", brokerEpoch, epoch - 1, NEWEST, stopped("a", 0, 3, true));
        publish("UpdateMetadata, older broker epoch", brokerEpoch - 1, epoch, NEWEST, brokers(1), known("a", 0, 9, 1));
        publish("UpdateMetadata, older controller epoch", brokerEpoch, epoch - 1, NEWEST, brokers(1), known("a", 0, 9, 1));
        probe("a", 0, 3);
        seen();
        epoch += 1;
        order("LeaderAndIsr, the next controller", leads("a", 0, 4, self));
        order("LeaderAndIsr, the controller of before", brokerEpoch, epoch - 1, NEWEST, leads("a", 0, 5, self));
    }

    private void epochsOfPartitions() throws IOException {
        order("LeaderAndIsr, new partitions of all kinds",
            leads("b", 0, 5, self), follows("b", 1, 5, 2), state("b", 2, 2, 5, 0, 2, 3));
        probe("b", 0, 5);
        probe("b", 0, 4);
        probe("b", 0, 6);
        probe("b", 0, -1);
        probe("b", 1, 5);
        order("LeaderAndIsr, the same again", leads("b", 0, 5, self), follows("b", 1, 5, 2));
        order("LeaderAndIsr, the same leader epoch, a newer partition epoch",
            state("b", 0, self, 5, 7, self, 2), state("b", 1, 2, 5, 7, self, 2));
        order("LeaderAndIsr, the same leader epoch, another leader", follows("b", 0, 5, 2), leads("b", 1, 5, self));
        order("LeaderAndIsr, an older leader epoch", leads("b", 0, 4, self), follows("b", 1, 4, 2));
        order("LeaderAndIsr, a newer leader epoch, newer partition epoch",
            state("b", 0, self, 6, 8, self, 2), state("b", 1, 2, 6, 8, self, 2));
        probe("b", 0, 6);
        order("LeaderAndIsr, a newer leader epoch, an older partition epoch",
            state("b", 0, self, 8, 3, self, 2), state("b", 1, self, 8, 3, self, 2));
        probe("b", 0, 6);
        probe("b", 0, 8);
        probe("b", 1, 8);
        order("LeaderAndIsr, a newer leader epoch, but not a replica", state("b", 0, 2, 20, 20, 2, 3));
        probe("b", 0, 8);
        order("LeaderAndIsr, good and bad beside each other",
            leads("b", 0, 5, self), leads("b", 1, 9, self), state("b", 3, 2, 0, 0, 2), leads("b", 4, 0, self));
        probe("b", 1, 9);
        probe("b", 4, 0);
    }

    private void topicIds() throws IOException {
        ids.put("c", Uuid.ZERO_UUID);
        order("LeaderAndIsr, no topic id", leads("c", 0, 1, self));
        ids.remove("c");
        order("LeaderAndIsr, a topic id for the same leader epoch", leads("c", 0, 1, self));
        order("LeaderAndIsr, that topic id again", leads("c", 0, 1, self));
        ids.put("c", new Uuid(77, 77));
        order("LeaderAndIsr, another topic id, the same leader epoch", leads("c", 0, 1, self));
        order("LeaderAndIsr, another topic id, a newer leader epoch", leads("c", 0, 2, self));
        order("LeaderAndIsr, another topic id for a new partition", leads("c", 1, 0, self));
        ids.put("c", Uuid.ZERO_UUID);
        order("LeaderAndIsr, the topic id left out, a newer leader epoch", leads("c", 0, 3, self));
        order("LeaderAndIsr, the topic id left out, the same leader epoch", leads("c", 0, 3, self));
        probe("c", 0, 3);
        ids.remove("c");
        fetch("Fetch by the topic's id", "c", 0, 2, 3, 0, -1);
        ids.put("c", new Uuid(77, 77));
        fetch("Fetch by another topic id", "c", 0, 2, 3, 0, -1);
        ids.remove("c");
    }

    private void leadersThatAreNot() throws IOException {
        order("LeaderAndIsr, to follow a broker that is not live", follows("d", 0, 1, 9));
        probe("d", 0, 1);
        order("LeaderAndIsr, the same with the same epoch", follows("d", 0, 1, 9));
        order("LeaderAndIsr, the same epoch, a leader that lives", follows("d", 0, 1, 2));
        order("LeaderAndIsr, no leader", state("d", 1, -1, 1, 0, self, 2));
        probe("d", 1, 1);
        order("LeaderAndIsr, a leader loses its leadership to nobody", leads("d", 2, 1, self));
        order("LeaderAndIsr, a leader loses its leadership to nobody: now", state("d", 2, -1, 2, 0, self, 2));
        probe("d", 2, 1);
        probe("d", 2, 2);
        publish("UpdateMetadata of what changes sides", brokerEpoch, epoch, NEWEST, brokers(1, 2, 3),
            known("d", 3, 1, self));
        order("LeaderAndIsr, from leader to follower", leads("d", 3, 1, self));
        order("LeaderAndIsr, from leader to follower: now", follows("d", 3, 2, 2));
        probe("d", 3, 2);
        produce("Produce to a follower", "d", 3, 1, 1);
        order("LeaderAndIsr, and back", leads("d", 3, 3, self));
        produce("Produce to a leader again", "d", 3, 1, 1);
    }

    private void leaderEpochHistory() throws IOException {
        order("History: epoch 5", state("h", 0, self, 5, 0, self));
        publish("History: the cache knows of it", brokerEpoch, epoch, NEWEST, brokers(1, 2, 3), known("h", 0, 5, self));
        produce("History: three records in epoch 5", "h", 0, 1, 3);
        order("History: epoch 7", state("h", 0, self, 7, 1, self));
        produce("History: two records in epoch 7", "h", 0, -1, 2);
        order("History: epoch 9", state("h", 0, self, 9, 2, self));
        for (int asked : new int[] {-1, 0, 4, 5, 6, 7, 8, 9, 10}) {
            endOffset("h", 0, 9, asked);
        }
        endOffset("h", 0, 8, 5);
        endOffset("h", 0, 10, 5);
        endOffset("h", 0, -1, 5);
        endOffset("h", 1, 9, 5);
        order("History: broker 2 is a replica", state("h", 0, self, 10, 3, self));
        order("History: broker 2 is a replica out of sync", withReplicas(state("h", 0, self, 11, 4, self), self, 2));
        fetch("Follower fetches from the start", "h", 0, 2, 11, 0, -1);
        fetch("Follower fetches at the end", "h", 0, 2, 11, 5, 7);
        fetch("Follower diverged: its last epoch is unknown here", "h", 0, 2, 11, 5, 6);
        fetch("Follower diverged: its log is longer", "h", 0, 2, 11, 4, 5);
        fetch("Follower's last epoch is newer", "h", 0, 2, 11, 5, 12);
        fetch("Follower with an older leader epoch", "h", 0, 2, 10, 5, 7);
        fetch("Follower with a newer leader epoch", "h", 0, 2, 12, 5, 7);
        fetch("Follower beyond the end", "h", 0, 2, 11, 6, -1);
        fetch("Fetch of who is no replica", "h", 0, 3, 11, 0, -1);
        fetch("Fetch of who is no replica, without an epoch", "h", 0, 3, -1, 0, -1);
        fetch("Fetch of a partition that is not here", "h", 9, 2, 11, 0, -1);
    }

    private void stopReplica() throws IOException {
        order("Stop: partitions to stop",
            leads("s", 0, 4, self), follows("s", 1, 4, 2), leads("s", 2, 4, self), leads("s", 3, 4, self),
            follows("s", 4, 4, 2));
        publish("Stop: and the cache knows of them", brokerEpoch, epoch, NEWEST, brokers(1, 2, 3),
            known("s", 0, 4, self), known("s", 1, 4, 2), known("s", 2, 4, self), known("s", 3, 4, self),
            known("s", 4, 4, 2));
        produce("Stop: records", "s", 0, 1, 2);
        stop("StopReplica, an older leader epoch", stopped("s", 0, 3, false), stopped("s", 1, 3, true));
        probe("s", 0, 4);
        stop("StopReplica, the leader's epoch, kept", stopped("s", 0, 4, false), stopped("s", 1, 4, false));
        probe("s", 0, 4);
        probe("s", 1, 4);
        produce("Produce to a leader that was stopped", "s", 0, 1, 1);
        order("LeaderAndIsr, the same epoch after a stop", leads("s", 0, 4, self), follows("s", 1, 4, 2));
        stop("StopReplica, a newer leader epoch, deleted", stopped("s", 0, 5, true), stopped("s", 1, 5, true));
        probe("s", 0, 4);
        probe("s", 1, 4);
        produce("Produce to a deleted replica", "s", 0, 1, 1);
        stop("StopReplica, deleted before", stopped("s", 0, 5, true), stopped("s", 1, 5, false));
        stop("StopReplica, never heard of", stopped("s", 8, 5, true), stopped("s", 9, 5, false), stopped("zz", 0, 0, true));
        stop("StopReplica, epoch unknown", stopped("s", 2, -1, true));
        stop("StopReplica, topic being deleted", stopped("s", 3, -2, true));
        probe("s", 2, 4);
        probe("s", 3, 4);
        order("LeaderAndIsr, a deleted replica comes again with an older epoch", leads("s", 2, 1, self));
        probe("s", 2, 1);
        order("LeaderAndIsr, a deleted replica comes again under another id: first", leads("s", 0, 1, self));
        stop("StopReplica v0 keeps", (short) 0, false, stopped("s", 2, -1, false));
        stop("StopReplica v0 deletes", (short) 0, true, stopped("s", 2, -1, true), stopped("s", 8, -1, true));
        stop("StopReplica v1 deletes", (short) 1, true, stopped("s", 0, -1, true), stopped("s", 4, -1, true));
        order("Stop: once more", leads("s", 0, 2, self), leads("s", 2, 2, self), follows("s", 4, 8, 2));
        stop("StopReplica v2 deletes", (short) 2, true, stopped("s", 0, -1, true), stopped("s", 4, -1, true));
        stop("StopReplica v3, older and equal", (short) 3, true, stopped("s", 2, 1, true));
        stop("StopReplica v3, equal", (short) 3, true, stopped("s", 2, 2, true));
        stop("StopReplica, none", brokerEpoch, epoch, NEWEST);
        probe("s", 0, 2);
    }

    private void metadata() throws IOException {
        publish("UpdateMetadata: a leader that lives, one that does not, none", brokerEpoch, epoch, NEWEST,
            brokers(1, 2, 3), known("m", 0, 1, 2), known("m", 1, 1, 9), known("m", 2, 1, -1));
        seen();
        publish("UpdateMetadata: a broker has gone", brokerEpoch, epoch, NEWEST, brokers(1, 2),
            known("m", 0, 1, 3).setOfflineReplicas(Arrays.asList(3)));
        seen(false);
        publish("UpdateMetadata: an older leader epoch is taken, too", brokerEpoch, epoch, NEWEST, brokers(1, 2, 3),
            known("m", 0, 0, 3));
        seen();
        publish("UpdateMetadata: a replica is offline, its broker lives", brokerEpoch, epoch, NEWEST, brokers(1, 2, 3),
            known("m", 0, 1, 1).setOfflineReplicas(Arrays.asList(3)));
        seen();
        publish("UpdateMetadata: a partition is deleted", brokerEpoch, epoch, NEWEST, brokers(1, 2, 3),
            known("m", 0, -2, -2));
        seen();
        publish("UpdateMetadata: the rest of the topic is deleted", brokerEpoch, epoch, NEWEST, brokers(1, 2, 3),
            known("m", 1, -2, -2), known("m", 2, -2, -2));
        seen();
        for (short version = 0; version <= 8; version++) {
            publish("UpdateMetadata v" + version, brokerEpoch, epoch, version, brokers(1, 2, 3),
                known("m", version, 3, 2), known("n" + version, 0, 1, 1));
        }
        seen();
    }

    private void oldVersions() throws IOException {
        for (short version = 0; version <= 7; version++) {
            order("LeaderAndIsr v" + version, brokerEpoch, epoch, version,
                leads("v" + version, 0, 1, self), follows("v" + version, 1, 1, 2), state("v" + version, 2, 2, 1, 0, 2, 3));
            order("LeaderAndIsr v" + version + ", the same again", brokerEpoch, epoch, version,
                leads("v" + version, 0, 1, self), follows("v" + version, 1, 1, 2));
            order("LeaderAndIsr v" + version + ", older controller epoch", brokerEpoch, epoch - 1, version,
                leads("v" + version, 0, 2, self));
            if (version >= 2) {
                order("LeaderAndIsr v" + version + ", older broker epoch", brokerEpoch - 1, epoch, version,
                    leads("v" + version, 0, 2, self));
            }
            order("LeaderAndIsr v" + version + ", a newer leader epoch", brokerEpoch, epoch, version,
                leads("v" + version, 0, 2, self));
            probe("v" + version, 0, 2);
        }
        order("LeaderAndIsr v7 gives topic ids to what v0 to v4 made",
            leads("v0", 0, 2, self), leads("v4", 0, 2, self), leads("v5", 0, 2, self));
    }

    private void newController() throws IOException {
        epoch += 10;
        publish("UpdateMetadata of a newer controller", brokerEpoch, epoch, NEWEST, brokers(1, 2, 3));
        order("LeaderAndIsr of the old one", brokerEpoch, epoch - 1, NEWEST, leads("k", 0, 1, self));
        stop("StopReplica of the old one", brokerEpoch, epoch - 1, NEWEST, stopped("v0", 0, -1, true));
        publish("UpdateMetadata of the old one", brokerEpoch, epoch - 1, NEWEST, brokers(1));
        stop("StopReplica of a newer one", brokerEpoch, epoch + 1, NEWEST, stopped("v0", 0, -1, true));
        order("LeaderAndIsr of what is old since the StopReplica", leads("k", 0, 1, self));
        seen();
    }

    // -- orders -------------------------------------------------------------------------------------------------

    private LeaderAndIsrPartitionState leads(String topic, int index, int leaderEpoch, int leader) {
        return state(topic, index, leader, leaderEpoch, 0, self, 2);
    }

    private LeaderAndIsrPartitionState follows(String topic, int index, int leaderEpoch, int leader) {
        return state(topic, index, leader, leaderEpoch, 0, self, leader);
    }

    private LeaderAndIsrPartitionState state(
        String topic, int index, int leader, int leaderEpoch, int partitionEpoch, Integer... replicas) {
        return new LeaderAndIsrPartitionState()
            .setTopicName(topic)
            .setPartitionIndex(index)
            .setControllerEpoch(epoch)
            .setLeader(leader)
            .setLeaderEpoch(leaderEpoch)
            .setIsr(Arrays.asList(replicas))
            .setPartitionEpoch(partitionEpoch)
            .setReplicas(Arrays.asList(replicas))
            .setAddingReplicas(Collections.emptyList())
            .setRemovingReplicas(Collections.emptyList())
            .setIsNew(true);
    }

    private static LeaderAndIsrPartitionState withReplicas(LeaderAndIsrPartitionState state, Integer... replicas) {
        return state.setReplicas(Arrays.asList(replicas));
    }

    private void order(String step, LeaderAndIsrPartitionState... states) throws IOException {
        order(step, brokerEpoch, epoch, NEWEST, states);
    }

    private void order(
        String step, long broker, int controller, short asked, LeaderAndIsrPartitionState... states) throws IOException {
        short version = asked == NEWEST ? ApiKeys.LEADER_AND_ISR.latestVersion() : asked;
        List<String> topics = Arrays.stream(states).map(each -> each.topicName()).collect(Collectors.toList());
        answer(step, new LeaderAndIsrRequest.Builder(
            version, CONTROLLER, controller, broker, Arrays.asList(states), idsOf(topics), nodes()).build(version));
    }

    private static Map.Entry<String, StopReplicaPartitionState> stopped(
        String topic, int index, int leaderEpoch, boolean delete) {
        return Map.entry(topic, new StopReplicaPartitionState()
            .setPartitionIndex(index).setLeaderEpoch(leaderEpoch).setDeletePartition(delete));
    }

    @SafeVarargs
    private void stop(String step, Map.Entry<String, StopReplicaPartitionState>... partitions) throws IOException {
        stop(step, brokerEpoch, epoch, NEWEST, partitions);
    }

    @SafeVarargs
    private void stop(String step, long broker, int controller, short asked,
        Map.Entry<String, StopReplicaPartitionState>... partitions) throws IOException {
        short version = asked == NEWEST ? ApiKeys.STOP_REPLICA.latestVersion() : asked;
        answer(step, new StopReplicaRequest.Builder(version, CONTROLLER, controller, broker, false, byTopic(partitions))
            .build(version));
    }

    @SafeVarargs
    private void stop(String step, short version, boolean delete,
        Map.Entry<String, StopReplicaPartitionState>... partitions) throws IOException {
        answer(step, new StopReplicaRequest.Builder(
            version, CONTROLLER, epoch, brokerEpoch, delete, byTopic(partitions)).build(version));
    }

    private static List<StopReplicaTopicState> byTopic(Map.Entry<String, StopReplicaPartitionState>[] partitions) {
        Map<String, StopReplicaTopicState> topics = new LinkedHashMap<>();
        for (Map.Entry<String, StopReplicaPartitionState> each : partitions) {
            topics.computeIfAbsent(each.getKey(), name -> new StopReplicaTopicState().setTopicName(name))
                .partitionStates().add(each.getValue());
        }
        return new ArrayList<>(topics.values());
    }

    private UpdateMetadataPartitionState known(String topic, int index, int leaderEpoch, int leader) {
        return new UpdateMetadataPartitionState()
            .setTopicName(topic)
            .setPartitionIndex(index)
            .setControllerEpoch(epoch)
            .setLeader(leader)
            .setLeaderEpoch(leaderEpoch)
            .setIsr(Arrays.asList(1, 2))
            .setZkVersion(0)
            .setReplicas(Arrays.asList(1, 2, 3))
            .setOfflineReplicas(Collections.emptyList());
    }

    private List<UpdateMetadataBroker> brokers(Integer... live) {
        return Arrays.stream(live).map(id -> new UpdateMetadataBroker()
            .setId(id)
            .setV0Host("127.0.0.1")
            .setV0Port(id == self ? port : 1)
            .setEndpoints(Arrays.asList(new UpdateMetadataEndpoint()
                .setHost("127.0.0.1")
                .setPort(id == self ? port : 1)
                .setListener(LISTENER.value())
                .setSecurityProtocol(SecurityProtocol.PLAINTEXT.id)))
            .setRack("rack-" + id)).collect(Collectors.toList());
    }

    private void alive(String step, Integer... live) throws IOException {
        publish(step, brokerEpoch, epoch, NEWEST, brokers(live));
    }

    private void publish(String step, long broker, int controller, short asked, List<UpdateMetadataBroker> live,
        UpdateMetadataPartitionState... states) throws IOException {
        short version = asked == NEWEST ? ApiKeys.UPDATE_METADATA.latestVersion() : asked;
        List<String> topics = Arrays.stream(states).map(each -> each.topicName()).collect(Collectors.toList());
        answer(step, new UpdateMetadataRequest.Builder(
            version, CONTROLLER, controller, broker, Arrays.asList(states), live, idsOf(topics)).build(version));
    }

    private Uuid idOf(String topic) {
        return ids.getOrDefault(topic, new Uuid(1, topic.hashCode()));
    }

    private Map<String, Uuid> idsOf(List<String> topics) {
        return topics.stream().distinct().collect(Collectors.toMap(topic -> topic, this::idOf));
    }

    private static List<Node> nodes() {
        return Arrays.asList(new Node(1, "127.0.0.1", 1), new Node(2, "127.0.0.1", 1));
    }

    // -- questions ----------------------------------------------------------------------------------------------

    /** Who leads here, in which epoch, and where the log ends: as ListOffsets tells a replica. */
    private void probe(String topic, int index, int leaderEpoch) throws IOException {
        ListOffsetsRequest request = ListOffsetsRequest.Builder.forReplica((short) 8, 3)
            .setTargetTimes(Arrays.asList(new ListOffsetsTopic().setName(topic).setPartitions(Arrays.asList(
                new ListOffsetsPartition().setPartitionIndex(index).setTimestamp(-1)
                    .setCurrentLeaderEpoch(leaderEpoch)))))
            .build((short) 8);
        ListOffsetsPartitionResponse found =
            ((ListOffsetsResponse) ask(request)).topics().get(0).partitions().get(0);
        tell("ListOffsets " + topic + "-" + index + " for epoch " + leaderEpoch,
            Errors.forCode(found.errorCode()) + " offset " + found.offset() + " epoch " + found.leaderEpoch());
    }

    private void endOffset(String topic, int index, int leaderEpoch, int asked) throws IOException {
        OffsetForLeaderTopicCollection topics = new OffsetForLeaderTopicCollection();
        topics.add(new OffsetForLeaderTopic().setTopic(topic).setPartitions(Arrays.asList(
            new OffsetForLeaderPartition().setPartition(index).setCurrentLeaderEpoch(leaderEpoch)
                .setLeaderEpoch(asked))));
        EpochEndOffset found = ((OffsetsForLeaderEpochResponse) ask(
            OffsetsForLeaderEpochRequest.Builder.forFollower((short) 4, topics, 2).build((short) 4)))
            .data().topics().iterator().next().partitions().get(0);
        tell("End of epoch " + asked + " of " + topic + "-" + index + " for epoch " + leaderEpoch,
            Errors.forCode(found.errorCode()) + " epoch " + found.leaderEpoch() + " ends at " + found.endOffset());
    }

    private void fetch(String step, String topic, int index, int replica, int leaderEpoch, long offset,
        int lastFetchedEpoch) throws IOException {
        FetchRequest.PartitionData data = new FetchRequest.PartitionData(idOf(topic), offset, 0, 1 << 20,
            leaderEpoch < 0 ? Optional.empty() : Optional.of(leaderEpoch),
            lastFetchedEpoch < 0 ? Optional.empty() : Optional.of(lastFetchedEpoch));
        FetchRequest request = FetchRequest.Builder.forReplica((short) 17, replica, -1, 0, 1,
            Collections.singletonMap(new TopicPartition(topic, index), data)).build((short) 17);
        FetchResponse response = (FetchResponse) ask(request);
        StringBuilder said = new StringBuilder(Errors.forCode(response.data().errorCode()).toString());
        response.data().responses().forEach(each -> each.partitions().forEach(found -> {
            long count = 0;
            for (RecordBatch batch : ((MemoryRecords) found.records()).batches()) {
                count += batch.countOrNull();
            }
            said.append(" ").append(Errors.forCode(found.errorCode()))
                .append(" high watermark ").append(found.highWatermark())
                .append(" log start ").append(found.logStartOffset())
                .append(" diverging ").append(found.divergingEpoch().epoch())
                .append(":").append(found.divergingEpoch().endOffset())
                .append(" leader ").append(found.currentLeader().leaderId())
                .append(":").append(found.currentLeader().leaderEpoch())
                .append(" records ").append(count);
        }));
        tell(step, said.toString());
    }

    private void produce(String step, String topic, int index, int acks, int count) throws IOException {
        SimpleRecord[] records = new SimpleRecord[count];
        for (int number = 0; number < count; number++) {
            records[number] = new SimpleRecord(1_700_000_000_000L + number, null, ("value-" + number).getBytes());
        }
        ProduceRequestData data = new ProduceRequestData().setAcks((short) acks).setTimeoutMs(200).setTopicData(
            new ProduceRequestData.TopicProduceDataCollection(Arrays.asList(
                new ProduceRequestData.TopicProduceData().setName(topic).setPartitionData(Arrays.asList(
                    new ProduceRequestData.PartitionProduceData().setIndex(index)
                        .setRecords(MemoryRecords.withRecords(Compression.NONE, records))))).iterator()));
        PartitionProduceResponse found = ((ProduceResponse) ask(
            new ProduceRequest.Builder((short) 9, (short) 9, data).build((short) 9)))
            .data().responses().iterator().next().partitionResponses().get(0);
        tell(step, Errors.forCode(found.errorCode()) + " at " + found.baseOffset()
            + " log start " + found.logStartOffset());
    }

    private void seen() throws IOException {
        seen(true);
    }

    /** The metadata cache of the broker. Without `offline` where brokers have left and no partition was published. */
    private void seen(boolean offline) throws IOException {
        MetadataRequestData data = new MetadataRequestData().setTopics(null).setAllowAutoTopicCreation(false);
        MetadataResponse response = (MetadataResponse) ask(new MetadataRequest(data, (short) 12));
        Map<String, String> topics = new TreeMap<>();
        for (MetadataResponseTopic topic : response.data().topics()) {
            Map<Integer, String> partitions = new TreeMap<>();
            for (MetadataResponsePartition found : topic.partitions()) {
                partitions.put(found.partitionIndex(), Errors.forCode(found.errorCode())
                    + " leader " + found.leaderId() + " epoch " + found.leaderEpoch() + " replicas "
                    + found.replicaNodes() + " isr " + found.isrNodes()
                    + (offline ? " offline " + found.offlineReplicas() : ""));
            }
            topics.put(topic.name(), Errors.forCode(topic.errorCode()) + " " + topic.topicId() + " " + partitions);
        }
        Map<Integer, String> brokers = new TreeMap<>();
        for (MetadataResponseBroker broker : response.data().brokers()) {
            brokers.put(broker.nodeId(), String.valueOf(broker.rack()));
        }
        tell("Metadata", "controller " + response.data().controllerId() + " brokers " + brokers + " topics " + topics);
    }

    // -- the wire -----------------------------------------------------------------------------------------------

    private void connect() throws IOException {
        socket = new Socket("127.0.0.1", port);
        socket.setSoTimeout(10_000);
        socket.setTcpNoDelay(true);
        input = new DataInputStream(socket.getInputStream());
    }

    private AbstractResponse ask(AbstractRequest request) throws IOException {
        RequestHeader header = new RequestHeader(request.apiKey(), request.version(), "control-driver", ++correlation);
        ByteBuffer body = request.serializeWithHeader(header);
        ByteBuffer framed = ByteBuffer.allocate(4 + body.remaining());
        framed.putInt(body.remaining()).put(body);
        socket.getOutputStream().write(framed.array());
        byte[] frame = new byte[input.readInt()];
        input.readFully(frame);
        return AbstractResponse.parseResponse(ByteBuffer.wrap(frame), header);
    }

    private void answer(String step, AbstractRequest request) throws IOException {
        AbstractResponse response;
        try {
            response = ask(request);
        } catch (IOException hungUp) {
            socket.close();
            connect();
            tell(step, "closed");
            return;
        }
        short version = request.version();
        Object said = response instanceof LeaderAndIsrResponse
            ? LeaderAndIsrResponseDataJsonConverter.write(((LeaderAndIsrResponse) response).data(), version)
            : response instanceof StopReplicaResponse
            ? StopReplicaResponseDataJsonConverter.write(((StopReplicaResponse) response).data(), version)
            : UpdateMetadataResponseDataJsonConverter.write(((UpdateMetadataResponse) response).data(), version);
        System.out.println("{\"step\": \"" + step + "\", \"answer\": " + said + "}");
    }

    private static void tell(String step, String answer) {
        System.out.println("{\"step\": \"" + step + "\", \"answer\": \"" + answer.replace("\"", "'") + "\"}");
    }
}
