import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.common.DirectoryId;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.metadata.PartitionChangeRecord;
import org.apache.kafka.controller.PartitionChangeBuilder;
import org.apache.kafka.metadata.LeaderRecoveryState;
import org.apache.kafka.metadata.PartitionRegistration;
import org.apache.kafka.server.common.MetadataVersion;

/**
 * What Kafka's own PartitionChangeBuilder makes of brokers that fail, return (cleanly or not) and of a leader's changes of
 * the ISR, with eligible leader replicas. Arguments: a seed, how many partitions. A partition is a line "new REPLICAS
 * MIN.INSYNC.REPLICAS", an event a line "EVENT | leader | ISR | ELR | last known ELR | recovery state" after it.
 */
public class EligibleLeaders {
    private static final int EVENTS = 25;

    private final Random random;
    private final int count;
    private final int minIsr;
    private final Set<Integer> alive;
    private PartitionRegistration partition;

    private EligibleLeaders(Random random) {
        this.random = random;
        count = 2 + random.nextInt(3);
        minIsr = 1 + random.nextInt(count);
        int[] replicas = IntStream.rangeClosed(1, count).toArray();
        alive = new TreeSet<>(boxed(replicas));
        Uuid[] directories = new Uuid[count];
        Arrays.fill(directories, DirectoryId.UNASSIGNED);
        partition = new PartitionRegistration.Builder()
            .setReplicas(replicas).setDirectories(directories).setIsr(replicas).setLeader(1)
            .setLeaderRecoveryState(LeaderRecoveryState.RECOVERED).setLeaderEpoch(0).setPartitionEpoch(0)
            .build();
    }

    private PartitionChangeBuilder change() {
        return new PartitionChangeBuilder(
            partition, Uuid.ZERO_UUID, 0, alive::contains, MetadataVersion.latestProduction(), minIsr, true
        ).setDefaultDirProvider(broker -> DirectoryId.UNASSIGNED);
    }

    private void apply(PartitionChangeBuilder change) {
        change.build().ifPresent(made -> partition = partition.merge((PartitionChangeRecord) made.message()));
    }

    /** ReplicationControlManager's handleBrokerFenced, handleUncleanBrokerShutdown, handleBrokerUnfenced, alterPartition. */
    private String event() {
        int kind = random.nextInt(3);
        int broker = 1 + random.nextInt(count);
        if (kind == 0 && alive.remove(broker)) {
            if (boxed(partition.isr).contains(broker)) apply(change().setTargetIsr(without(partition.isr, broker)));
            return "fail " + broker;
        }
        if (kind == 1 && !alive.contains(broker)) {
            boolean clean = random.nextBoolean();
            boolean listed = boxed(partition.isr).contains(broker) || boxed(partition.elr).contains(broker);
            if (!clean && listed) {
                List<Integer> isr = without(partition.isr, broker);
                apply(change().setTargetIsr(isr).setUncleanShutdownReplicas(List.of(broker)));
            }
            alive.add(broker);
            if (partition.leader < 0) apply(change());
            return (clean ? "clean " : "unclean ") + broker;
        }
        if (kind == 2 && partition.leader >= 0) {
            List<Integer> isr = alive.stream()
                .filter(member -> member == partition.leader || random.nextInt(3) > 0).collect(Collectors.toList());
            apply(change().setTargetIsr(isr).setTargetLeaderRecoveryState(LeaderRecoveryState.RECOVERED));
            return "alter " + isr.stream().map(String::valueOf).collect(Collectors.joining(","));
        }
        return null;
    }

    private static List<Integer> boxed(int[] brokers) {
        return Arrays.stream(brokers).boxed().collect(Collectors.toList());
    }

    private static List<Integer> without(int[] brokers, int gone) {
        return Arrays.stream(brokers).filter(broker -> broker != gone).boxed().collect(Collectors.toList());
    }

    public static void main(String[] arguments) {
        Random random = new Random(Long.parseLong(arguments[0]));
        for (int run = 0; run < Integer.parseInt(arguments[1]); run++) {
            EligibleLeaders walk = new EligibleLeaders(random);
            System.out.println("new " + walk.count + " " + walk.minIsr);
            for (int step = 0; step < EVENTS; step++) {
                String event = walk.event();
                if (event == null) continue;
                PartitionRegistration now = walk.partition;
                System.out.printf("%s | %d | %s | %s | %s | %s%n", event, now.leader, boxed(now.isr), boxed(now.elr),
                    boxed(now.lastKnownElr), now.leaderRecoveryState);
            }
        }
    }
}
