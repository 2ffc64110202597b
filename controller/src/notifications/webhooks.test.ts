// SPDX-License-Identifier: Apache-2.0

import { createHmac } from "node:crypto";
import { mkdirSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { createClient } from "@connectrpc/connect";
import { ClaimService, errorCodeOf } from "@millpond/api";
import { pino } from "pino";
import { expect, onTestFinished, test } from "vitest";
import { startController } from "../controller.ts";
import { makeTestDirectory } from "../testing/test-pool.ts";
import { makeTransport } from "../testing/transport.ts";
import { pauseAfter } from "./webhook.ts";
import { readWebhooks } from "./webhook-config.ts";

interface Received {
  readonly path: string;
  readonly headers: Readonly<Record<string, unknown>>;
  readonly body: string;
}

/** A server that records its requests, and answers each with the next status from a list, then with 200. */
class Receiver {
  readonly received: Received[] = [];
  readonly statuses: number[] = [];
  readonly #waiting: (() => void)[] = [];
  url = "";

  static async start(): Promise<Receiver> {
    const receiver = new Receiver();
    const server = createServer((request, response) => {
      let body = "";
      request.on("data", (chunk: Buffer) => {
        body += chunk.toString();
      });
      request.on("end", () => {
        receiver.received.push({ path: request.url ?? "", headers: request.headers, body });
        const status = receiver.statuses.shift() ?? 200;
        response.writeHead(status, { location: `${receiver.url}/elsewhere` }).end("what is not read");
        for (const wake of receiver.#waiting.splice(0)) wake();
      });
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    receiver.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    onTestFinished(async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    });
    return receiver;
  }

  async has(count: number): Promise<void> {
    while (this.received.length < count) {
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
  }

  bodies(): Record<string, unknown>[] {
    return this.received.map(({ body }) => JSON.parse(body) as Record<string, unknown>);
  }
}

const secret = "a-secret-of-24-characters";

async function startPool(directory: string, webhooks: readonly object[]) {
  const file = join(directory, "webhooks.json");
  writeFileSync(file, JSON.stringify(webhooks));
  writeFileSync(join(directory, "secret"), `${secret}\n`);
  const controller = await startController({
    stateDirectory: join(directory, "state"),
    listen: "127.0.0.1:0",
    webhooks: file,
    log: pino({ level: "silent" }),
  });
  const claims = createClient(ClaimService, makeTransport(controller.url, controller.userToken));
  return { claims, stop: () => controller[Symbol.asyncDispose]() };
}

test("events are delivered to their subscribers, signed and in order, and retried after a failure", async () => {
  const receiver = await Receiver.start();
  receiver.statuses.push(503, 301);
  const directory = makeTestDirectory();
  const { claims, stop } = await startPool(directory, [
    { name: "all", url: `${receiver.url}/all`, secretFile: "secret", events: ["Claim*"] },
  ]);
  await claims.createClaim({ claim: { name: "one", gpus: 1 } });
  await claims.createClaim({ claim: { name: "two", gpus: 1 } });
  // 503 is retried; a redirection is neither followed nor retried.
  await receiver.has(3);
  await stop();
  expect(receiver.received.map(({ path }) => path)).toEqual(["/all", "/all", "/all"]);
  const [first, again, second] = receiver.bodies();
  expect(again).toEqual(first);
  expect(first).toMatchObject({ kind: "ClaimCreated", subject: "claim/one", tenant: "default" });
  expect(second).toMatchObject({ kind: "ClaimCreated", subject: "claim/two" });
  expect(Number(second?.["id"])).toBeGreaterThan(Number(first?.["id"]));
  for (const { headers, body } of receiver.received) {
    const [, at = "", mac = ""] =
      /^t=(\d+),v1=([0-9a-f]{64})$/.exec(String(headers["millpond-signature"])) ?? [];
    expect(mac).toBe(createHmac("sha256", secret).update(`${at}.${body}`).digest("hex"));
  }
});

test("after a restart a receiver gets what it has not had, and other tenants' events never", async () => {
  const receiver = await Receiver.start();
  const directory = makeTestDirectory();
  const configs = [
    {
      name: "chat",
      url: `${receiver.url}/chat`,
      events: ["ClaimCreated"],
      tenants: ["default"],
      format: "text",
    },
    { name: "others", url: `${receiver.url}/others`, tenants: ["team-b"] },
  ];
  const before = await startPool(directory, configs);
  await before.claims.createClaim({ claim: { name: "one", gpus: 1 } });
  await receiver.has(1);
  await before.stop();
  const after = await startPool(directory, configs);
  await after.claims.createClaim({ claim: { name: "two", gpus: 1 } });
  await receiver.has(2);
  await after.stop();
  expect(receiver.received.map(({ path }) => path)).toEqual(["/chat", "/chat"]);
  const texts = receiver.bodies().map(({ text }) => String(text));
  expect(texts[0]).toMatch(/^ClaimCreated claim\/one: /);
  expect(texts[1]).toMatch(/^ClaimCreated claim\/two: /);
});

test("pauses between attempts double, vary, and have an end", () => {
  expect([1, 2, 3].map((failures) => pauseAfter(failures, 0.5))).toEqual([1000, 2000, 4000]);
  expect(pauseAfter(1, 0)).toBe(800);
  expect(pauseAfter(1000, 1)).toBe(360_000);
});

test.each([
  ["{}", /it is not a list/],
  ["nonsense", /it cannot be read: /],
  [[{ url: "https://a.b" }], /receiver 1: name is missing/],
  [[{ name: "a", url: "ftp://a.b" }], /url "ftp:\/\/a\.b" is not an address/],
  [[{ name: "a", url: "http://10.0.0.1/" }], /is not encrypted, and not of this host/],
  [[{ name: "a", url: "https://user:word@a.b" }], /url has a user or a password/],
  [[{ name: "a", url: "https://a.b", secretFile: "none" }], /the secret cannot be read: ENOENT/],
  [[{ name: "a", url: "https://a.b", secretFile: "" }], /secretFile is missing, or no text/],
  [[{ name: "a", url: "https://a.b", secretFile: "short" }], /the secret in .*short has 5 characters/],
  [[{ name: "a", url: "https://a.b", events: ["*Lost"] }], /"\*Lost" is not a kind of event/],
  [[{ name: "a", url: "https://a.b", tenant: "x" }], /it has no member "tenant"/],
  [[{ name: "a", url: "https://a.b", format: "xml" }], /the format "xml" is unknown/],
  [
    [
      { name: "a", url: "https://a.b" },
      { name: "a", url: "https://a.c" },
    ],
    /two receivers have the name "a"/,
  ],
])("a file of receivers is refused: %j", (content, why) => {
  const directory = makeTestDirectory();
  mkdirSync(directory, { recursive: true });
  const file = join(directory, "webhooks.json");
  writeFileSync(file, typeof content === "string" ? content : JSON.stringify(content));
  writeFileSync(join(directory, "short"), "short");
  let error: unknown;
  try {
    readWebhooks(file);
  } catch (thrown) {
    error = thrown;
  }
  expect(errorCodeOf(error)).toBe("MILLPOND_E_INVALID");
  expect(String(error)).toMatch(why);
});
