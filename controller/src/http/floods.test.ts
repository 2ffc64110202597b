// SPDX-License-Identifier: Apache-2.0

// Floods of unauthenticated connections: their cost and duration.

import { once } from "node:events";
import { createServer, type IncomingMessage } from "node:http";
import { type AddressInfo, connect, type Socket } from "node:net";
import { ClaimService } from "@millpond/api";
import { pino } from "pino";
import { expect, onTestFinished, test } from "vitest";
import { startController } from "../controller.ts";
import { TokenVerifier } from "../auth/tokens.ts";
import { drainBody } from "./request-body.ts";
import { makeServer } from "./server.ts";
import { makeTestDirectory, TestPool } from "../testing/test-pool.ts";

const MiB = 1 << 20;
const path = `/${ClaimService.typeName}/ListClaims`;

function connectTo(url: string): Socket {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  socket.on("error", () => undefined);
  onTestFinished(() => {
    socket.destroy();
  });
  return socket;
}

function head(length: number, more = ""): string {
  return `POST ${path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nAuthorization: Bearer ${"x".repeat(40)}\r\nContent-Length: ${length}\r\n${more}\r\n`;
}

/** Milliseconds until the other side has closed a connection. */
async function lifeOf(socket: Socket): Promise<number> {
  const startMs = performance.now();
  socket.resume();
  // Not `once`, which rejects on a socket error: a reset also counts as an end.
  await new Promise<void>((resolve) => socket.on("close", () => resolve()));
  return performance.now() - startMs;
}

test("what is said by those who are refused is not kept", async () => {
  const requests: IncomingMessage[] = [];
  const server = createServer((request) => {
    requests.push(request);
    void drainBody(request, MiB);
  });
  onTestFinished(() => void server.close());
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const body = Buffer.alloc(MiB - 1, " ");
  const before = process.memoryUsage().arrayBuffers;
  for (let index = 0; index < 300; index++) {
    const socket = connectTo(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
    socket.write(head(MiB));
    socket.write(body);
  }
  const read = () => requests.reduce((sum, { socket }) => sum + socket.bytesRead, 0);
  await expect.poll(read).toBeGreaterThanOrEqual(300 * (MiB - 1));
  expect((process.memoryUsage().arrayBuffers - before) / MiB).toBeLessThan(150);
});

test("a refused client has to say all it wanted before it may call again, and is cut off after it was told", async () => {
  const pool = await TestPool.start();
  const socket = connectTo(pool.controller.url);
  const said: Buffer[] = [];
  socket.on("data", (chunk: Buffer) => said.push(chunk));
  socket.write(`${head(2)}{}`);
  await lifeOf(socket);
  expect(Buffer.concat(said).toString()).toMatch(/^HTTP\/1.1 401 [^]*connection: close[^]*UNAUTHENTICATED/i);
});

test("the same over gRPC-web, whose refusals are said in the body", async () => {
  const pool = await TestPool.start();
  const socket = connectTo(pool.controller.url);
  const said: Buffer[] = [];
  socket.on("data", (chunk: Buffer) => said.push(chunk));
  socket.write(head(0).replace("application/json", "application/grpc-web+proto"));
  await lifeOf(socket);
  // Not because it was idle.
  expect(Buffer.concat(said).toString()).toMatch(/^HTTP\/1.1 200 [^]*connection: close[^]*UNAUTHENTICATED/i);
});

test("slow heads, slow bodies and silence end after seconds", async () => {
  const pool = await TestPool.start();
  const silent = connectTo(pool.controller.url);
  const slowHead = connectTo(pool.controller.url);
  slowHead.write("POST / HTTP/1.1\r\n");
  const slowBody = connectTo(pool.controller.url);
  slowBody.write(head(100));
  const drip = setInterval(() => {
    slowHead.write("X-A: b\r\n");
    slowBody.write(" ");
  }, 300);
  try {
    const lives = await Promise.all([silent, slowHead, slowBody].map(lifeOf));
    expect(Math.max(...lives)).toBeLessThan(15_000);
  } finally {
    clearInterval(drip);
  }
});

test("a TLS handshake that is not gone on with ends after seconds", async () => {
  const controller = await startController({
    stateDirectory: makeTestDirectory(),
    listen: "0.0.0.0:0",
    log: pino({ level: "silent" }),
  });
  onTestFinished(() => controller[Symbol.asyncDispose]());
  const socket = connectTo(controller.url);
  socket.write(Buffer.from([22, 3, 1, 2, 0]));
  expect(await lifeOf(socket)).toBeLessThan(15_000);
});

test("connections beyond the limit are closed at once and logged; when they leave, others get in", async () => {
  const lines: string[] = [];
  const controller = await startController({
    stateDirectory: makeTestDirectory(),
    listen: "127.0.0.1:0",
    log: pino({ level: "warn" }, { write: (line: string) => lines.push(line) }),
    connectionLimits: { most: 40, mostOfAddress: 20 },
  });
  onTestFinished(() => controller[Symbol.asyncDispose]());
  const sockets: Socket[] = [];
  for (let index = 0; index < 20; index++) {
    const socket = connectTo(controller.url);
    await once(socket, "connect");
    sockets.push(socket);
  }
  await lifeOf(connectTo(controller.url));
  // The others go on, until their time for a request has passed.
  expect(sockets.filter(({ closed }) => closed)).toEqual([]);
  expect(lines.join("")).toContain("connections are refused");
  for (const socket of sockets) {
    socket.destroy();
  }
  await expect
    .poll(async () => (await fetch(`${controller.url}/healthz`).catch(() => undefined))?.status)
    .toBe(200);
});

test("the health page asks the store once a second, and tells strangers nothing of what is wrong with it", async () => {
  let asked = 0;
  let isWell = true;
  const server = makeServer({
    tokens: new TokenVerifier(
      [],
      () => undefined,
      () => 0,
    ),
    log: pino({ level: "silent" }),
    shutdown: new AbortController().signal,
    handlers: () => new Map(),
    metrics: {},
    checkHealth: async () => {
      asked += 1;
      if (!isWell) {
        throw new Error("connection to db.internal:5432 refused");
      }
    },
  });
  onTestFinished(() => server.close());
  const url = await server.listen({ host: "127.0.0.1", port: 0 });
  const read = async () => await (await fetch(`${url}/healthz`)).text();
  const begunMs = performance.now();
  const pages = await Promise.all(Array.from({ length: 50 }, read));
  const seconds = (performance.now() - begunMs) / 1000;
  expect(new Set(pages)).toEqual(new Set(['{"status":"ok"}']));
  expect(asked).toBeLessThanOrEqual(1 + Math.floor(seconds));
  isWell = false;
  await expect.poll(read).toContain("failing");
  expect(await read()).not.toContain("db.internal");
});
