// SPDX-License-Identifier: Apache-2.0

import { once } from "node:events";
import { createServer, type IncomingMessage } from "node:http";
import { createServer as createTlsServer } from "node:https";
import type { AddressInfo } from "node:net";
import { makeAuthority, makeServerCertificate } from "@millpond/platform";
import { expect, onTestFinished, test } from "vitest";
import {
  asMergePatch,
  briefly,
  ClusterConfig,
  connectCluster,
  describeFailure,
  statusOf,
} from "./cluster.ts";

interface Answer {
  readonly status: number;
  readonly body: string;
}

/** Starts an API server over TLS that answers every call the same way, and records the calls. */
async function startServer(answer: Answer, serverPath = "") {
  const validity = { from: new Date(Date.now() - 60_000), to: new Date(Date.now() + 600_000) };
  const authority = makeAuthority("test", validity);
  const { certificate, key } = makeServerCertificate(authority, ["127.0.0.1"], validity);
  const asked: { method: string; url: string; headers: IncomingMessage["headers"]; body: string }[] = [];
  let connections = 0;
  const server = createTlsServer({ cert: certificate, key }, (request, response) => {
    let body = "";
    request.setEncoding("utf8").on("data", (part: string) => (body += part));
    request.on("end", () => {
      asked.push({ method: request.method ?? "", url: request.url ?? "", headers: request.headers, body });
      response.writeHead(answer.status, { "content-type": "application/json" }).end(answer.body);
    });
  });
  server.on("secureConnection", () => (connections += 1)).listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  const config = new ClusterConfig();
  config.loadFromOptions({
    clusters: [
      {
        name: "test",
        server: `https://127.0.0.1:${port}${serverPath}`,
        caData: Buffer.from(authority.certificate).toString("base64"),
      },
    ],
    users: [{ name: "test", token: "secret" }],
    contexts: [{ name: "test", cluster: "test", user: "test" }],
    currentContext: "test",
  });
  return { core: connectCluster(config).core, asked, connections: () => connections };
}

const namespace = "default";

test("calls have their path, query, headers and body, and share their connections", async () => {
  const name = "größe";
  const pod = { metadata: { name, labels: { "a/b": "c" } } };
  const { core, asked, connections } = await startServer(
    { status: 200, body: JSON.stringify(pod) },
    "/clusters/one",
  );
  const read = await core.readNamespacedPod({ namespace, name: "p", pretty: "true" });
  expect(read.metadata).toMatchObject(pod.metadata);
  await core.patchNamespacedPod({ namespace, name: "p", body: pod }, asMergePatch);
  expect(asked.map(({ method, url, body }) => [method, url, body])).toEqual([
    ["GET", "/clusters/one/api/v1/namespaces/default/pods/p?pretty=true", ""],
    ["PATCH", "/clusters/one/api/v1/namespaces/default/pods/p", JSON.stringify(pod)],
  ]);
  expect(asked[1]?.headers).toMatchObject({
    authorization: "Bearer secret",
    "content-type": "application/merge-patch+json",
    "user-agent": "millpond",
  });
  for (let call = 0; call < 20; call += 1) await core.readNamespacedPod({ namespace, name: "p" });
  expect(connections()).toBeLessThan(3);
});

test("an answer that nobody reads is not parsed, and one that refuses is told in full", async () => {
  const secret = { metadata: { name: "s" } };
  const answers: Answer = { status: 201, body: "no JSON" };
  const brief = await startServer(answers);
  expect(await brief.core.createNamespacedSecret({ namespace, body: secret }, briefly())).toBeDefined();
  await expect(brief.core.createNamespacedSecret({ namespace, body: secret })).rejects.toThrow(SyntaxError);
  const refusing = await startServer({
    status: 409,
    body: JSON.stringify({ kind: "Status", message: 'secrets "s" already exists' }),
  });
  const failed = refusing.core.createNamespacedSecret({ namespace, body: secret }, briefly());
  const error: unknown = await failed.catch((each: unknown) => each);
  expect([statusOf(error), describeFailure(error)]).toEqual([409, 'secrets "s" already exists']);
});

test("a server that is not there is an error with its cause", async () => {
  const gone = createServer().listen(0, "127.0.0.1");
  await once(gone, "listening");
  const { port } = gone.address() as AddressInfo;
  gone.close();
  const config = new ClusterConfig();
  config.loadFromClusterAndUser(
    { name: "test", server: `https://127.0.0.1:${port}`, skipTLSVerify: true },
    { name: "test" },
  );
  await expect(connectCluster(config).core.readNamespacedPod({ namespace, name: "p" })).rejects.toThrow(
    /ECONNREFUSED/,
  );
});
