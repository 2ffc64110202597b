// SPDX-License-Identifier: Apache-2.0

// Attacks on the port of an agent by processes without a ticket.

import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { pino } from "pino";
import { expect, onTestFinished, test } from "vitest";
import { makeOwnCertificate } from "@millpond/platform";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type NodeServerOptions, serveNode } from "./node-service.ts";

async function start(more: Partial<NodeServerOptions> = {}): Promise<URL> {
  const none = new Proxy({}, { get: () => () => undefined });
  const server = await serveNode({
    host: "127.0.0.1",
    port: 0,
    advertisedHost: "127.0.0.1",
    certificate: undefined,
    token: "a-token-of-an-agent",
    // No call of these tests reaches them.
    opener: none as NodeServerOptions["opener"],
    claims: none as NodeServerOptions["claims"],
    status: () => ({}),
    metrics: () => "",
    log: pino({ level: "silent" }),
    ...more,
  });
  onTestFinished(() => server.close());
  return new URL(server.url);
}

function open({ hostname, port }: URL): Socket {
  const socket = connect(Number(port), hostname);
  socket.on("error", () => undefined);
  onTestFinished(() => {
    socket.destroy();
  });
  return socket;
}

async function lifeOf(socket: Socket): Promise<number> {
  const startMs = performance.now();
  socket.resume();
  // The connection may be cut by a reset, which is an error for which `once` of node:events would reject.
  await new Promise<void>((resolve) => socket.once("close", () => resolve()));
  return performance.now() - startMs;
}

test("a body that comes one byte at a time, a head that does not end, and silence are cut off after seconds", async () => {
  const url = await start();
  const [silent, head, body] = [open(url), open(url), open(url)];
  head.write("POST / HTTP/1.1\r\n");
  body.write(
    "POST /millpond.v1.NodeService/OpenSession HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n",
  );
  const drip = setInterval(() => {
    head.write("X-A: b\r\n");
    body.write(" ");
  }, 300);
  onTestFinished(() => clearInterval(drip));
  const lives = await Promise.all([silent, head, body].map(lifeOf));
  expect(Math.max(...lives)).toBeLessThan(15_000);
});

test("half a TLS handshake is cut off after seconds", async () => {
  const directory = mkdtempSync(join(tmpdir(), "millpond-agent-"));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  const url = await start({ certificate: makeOwnCertificate([], { directory, authority: "Test" }) });
  const socket = open(url);
  socket.write(Buffer.from([22, 3, 1, 2, 0]));
  expect(await lifeOf(socket)).toBeLessThan(15_000);
});

test("connections beyond the limit are closed at once and logged, and sessions can be asked for when they leave", async () => {
  const lines: string[] = [];
  const url = await start({
    connectionLimits: { most: 20, mostOfAddress: 10 },
    log: pino({ level: "warn" }, { write: (line: string) => lines.push(line) }),
  });
  const sockets = Array.from({ length: 10 }, () => open(url));
  await Promise.all(sockets.map((socket) => once(socket, "connect")));
  await lifeOf(open(url));
  // The others go on, until their time for a request has passed.
  expect(sockets.filter(({ closed }) => closed)).toEqual([]);
  expect(lines.join("")).toContain("connections are refused");
  for (const socket of sockets) {
    socket.destroy();
  }
  const status = async () => (await fetch(new URL("/metrics", url)).catch(() => undefined))?.status;
  await expect.poll(status).toBe(401);
});
