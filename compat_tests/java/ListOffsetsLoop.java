import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.common.TopicPartition;

/** Lists a partition's end offset once for each line that comes in: servers, topic, and what differs from the defaults. */
public final class ListOffsetsLoop {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", arguments[0]);
        for (int index = 2; index < arguments.length; index++) {
            String[] item = arguments[index].split("=", 2);
            config.put(item[0], item[1]);
        }
        Map<TopicPartition, OffsetSpec> wanted = Map.of(new TopicPartition(arguments[1], 0), OffsetSpec.latest());
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        try (Admin admin = Admin.create(config)) {
            while (lines.readLine() != null) {
                String said = "ok";
                long begin = System.currentTimeMillis();
                try {
                    admin.listOffsets(wanted).all().get();
                } catch (ExecutionException failure) {
                    said = System.currentTimeMillis() - begin + " ms: " + failure.getCause();
                }
                System.out.println(said);
                System.out.flush();
            }
        }
    }
}
