// SPDX-License-Identifier: Apache-2.0

// A reflector with misbehaving API servers.

import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { V1ConfigMap } from "@kubernetes/client-node";
import { expect, onTestFinished, test } from "vitest";
import { testLog } from "../testing/test-pool.ts";
import { ClusterConfig, connectCluster } from "./cluster.ts";
import { Reflector } from "./reflector.ts";

/**
 * A server with an empty list.
 *
 * @param watch answers a watch from a version.
 */
async function startReflector(
  versionOf: (list: number) => string,
  watch: (version: string, request: IncomingMessage, response: ServerResponse) => void,
  retryMs: number,
) {
  const seen = { lists: 0, watches: 0 };
  const server = createServer((request, response) => {
    const { searchParams } = new URL(request.url ?? "", "http://localhost");
    if (searchParams.get("watch") === "true") {
      seen.watches += 1;
      watch(searchParams.get("resourceVersion") ?? "", request, response);
      return;
    }
    seen.lists += 1;
    const body = { kind: "List", metadata: { resourceVersion: versionOf(seen.lists) }, items: [] };
    response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(body));
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  const port = typeof address === "object" && address !== null ? address.port : 0;
  const config = new ClusterConfig();
  config.loadFromOptions({
    clusters: [{ name: "test", server: `http://127.0.0.1:${port}`, skipTLSVerify: true }],
    users: [{ name: "test" }],
    contexts: [{ name: "test", cluster: "test", user: "test" }],
    currentContext: "test",
  });
  const cluster = connectCluster(config);
  const reflector = new Reflector<V1ConfigMap>({
    cluster,
    path: "/api/v1/configmaps",
    list: (page) => cluster.core.listConfigMapForAllNamespaces(page),
    onChange: () => undefined,
    log: testLog,
    retryMs,
  }).start();
  onTestFinished(async () => {
    await reflector.stop();
    server.closeAllConnections();
    server.close();
  });
  return { seen, cluster };
}

test("watches that end at once, with nothing, are not asked for without a pause", async () => {
  const { seen, cluster } = await startReflector(
    () => "5",
    (_version, _request, response) => response.writeHead(200).end(),
    1_000_000,
  );
  await expect.poll(() => seen.watches).toBe(1);
  // A reflector without back-off would send as many requests in this time as this loop does.
  for (let round = 0; round < 20; round += 1) await cluster.core.listConfigMapForAllNamespaces();
  expect(seen.watches).toBe(1);
});

test("a server that was restored from a backup, and has never had the version, is listed again", async () => {
  const { seen } = await startReflector(
    (list) => (list === 1 ? "900" : "7"),
    (version, _request, response) => {
      if (version === "7") response.writeHead(200).flushHeaders();
      else response.writeHead(504).end(JSON.stringify({ code: 504, message: "Too large resource version" }));
    },
    1,
  );
  await expect.poll(() => seen.lists).toBe(2);
  await expect.poll(() => seen.watches).toBe(6);
});
