// Each statement below its comment is one that the compiler must refuse: it does when no comment is unused.
import createClient from "openapi-fetch";
import type { paths } from "./api.js";

const client = createClient<paths>({ baseUrl: "http://127.0.0.1:1" });

// @ts-expect-error: no such path
await client.GET("/v1/topic");
// @ts-expect-error: no such verb
await client.POST("/v1/brokers/{id}/{verb}", { params: { path: { id: 1, verb: "dance" } } });
// @ts-expect-error: an id is a number
await client.POST("/v1/brokers/{id}/{verb}", { params: { path: { id: "1", verb: "kill" } } });
// @ts-expect-error: the name is missing
await client.POST("/v1/topics", { body: { partitions: 1 } });
// @ts-expect-error: the number of partitions is a number
await client.POST("/v1/topics", { body: { name: "t", partitions: "1" } });

const { data } = await client.GET("/v1/groups/{group}", { params: { path: { group: "g" } } });
// @ts-expect-error: the lag may be null
const lag: number = data!.lag;
// @ts-expect-error: no such key
console.log(lag, data!.members[0]!.name);
