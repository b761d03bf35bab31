// A test author's program against the control API: every path, field and key is checked by the compiler.
import createClient from "openapi-fetch";
import type { components, paths } from "./api.js";

const [baseUrl, token] = process.argv.slice(2);
const headers = token === undefined ? {} : { Authorization: `Bearer ${token}` };
const client = createClient<paths>({ baseUrl: baseUrl ?? "", headers });

type Failure = components["schemas"]["Error"];

function got<T>(answer: { data?: T; error?: Failure; response: Response }): T {
  if (answer.data === undefined) {
    throw new Error(`${answer.response.status}: ${answer.error?.message}`);
  }
  return answer.data;
}

const cluster = got(await client.GET("/v1/cluster"));
const brokers: number[] = cluster.brokers.map((broker) => broker.id);

const topic = got(
  await client.POST("/v1/topics", {
    body: { name: "orders", assignment: [brokers], config: { "min.insync.replicas": 1 } },
  }),
);
const path = { topic: "orders", n: 0 };
const before: components["schemas"]["Partition"] | undefined = topic.partitions[0];
const leader: number = before?.leader ?? -1;

const written = got(
  await client.POST("/v1/topics/{topic}/records", {
    params: { path: { topic: "orders" } },
    body: { key: "7", value: { base64: "AP8=" }, headers: [{ name: "trace", value: "x" }] },
  }),
);
const { records } = got(
  await client.GET("/v1/topics/{topic}/records", {
    params: { path: { topic: "orders" }, query: { partition: 0, limit: 5, encoding: "text" } },
  }),
);
const values = records.map((record) =>
  record.value === null || typeof record.value === "string" ? record.value : record.value.base64,
);

const killed = got(
  await client.POST("/v1/brokers/{id}/{verb}", { params: { path: { id: leader, verb: "kill" } } }),
);
let after = got(await client.GET("/v1/topics/{topic}/partitions/{n}", { params: { path } }));
while (after.leader === leader || after.leader === -1) {
  after = got(await client.GET("/v1/topics/{topic}/partitions/{n}", { params: { path } }));
}
const silent = after.replicas.flatMap((replica) => ("message" in replica ? [replica.broker] : []));
const started = got(
  await client.POST("/v1/brokers/{id}/{verb}", { params: { path: { id: leader, verb: "start" } } }),
);

const fault = got(
  await client.POST("/v1/faults", { body: { api: "Produce", error: "NOT_ENOUGH_REPLICAS", times: 3 } }),
);
const removed = got(await client.DELETE("/v1/faults/{id}", { params: { path: { id: fault.id } } }));
const refused = await client.GET("/v1/topics/{topic}", { params: { path: { topic: "nope" } } });

console.log(
  JSON.stringify({
    brokers,
    leader,
    offset: written.offset,
    values,
    running: [killed.running, started.running],
    moved: after.leader !== leader,
    epoch: after.leader_epoch,
    silent,
    hits: removed.hits,
    refused: [refused.response.status, refused.error?.error],
  }),
);
