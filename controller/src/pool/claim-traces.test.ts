// SPDX-License-Identifier: Apache-2.0

import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { createClient } from "@connectrpc/connect";
import { ClaimService } from "@millpond/api";
import { otlpTarget } from "@millpond/platform";
import { pino } from "pino";
import { expect, onTestFinished, test } from "vitest";
import { startController } from "../controller.ts";
import { FakeAgent, fakeDevice } from "../testing/fake-agent.ts";
import { GiB, makeTestDirectory } from "../testing/test-pool.ts";
import { makeTransport } from "../testing/transport.ts";
import { systemClock } from "../timers/clock.ts";

interface OtlpSpan {
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId?: string;
  readonly name: string;
  readonly startTimeUnixNano: string;
  readonly endTimeUnixNano: string;
  readonly attributes: readonly { readonly key: string; readonly value: object }[];
}

/** A collector that answers with these statuses in turn, and then keeps repeating the last one. */
async function startCollector(...states: readonly number[]) {
  const spans: OtlpSpan[] = [];
  const headers: unknown[] = [];
  let calls = 0;
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on("data", (chunk: Buffer) => chunks.push(chunk));
    request.on("end", () => {
      const status = states[Math.min(calls, states.length - 1)] ?? 200;
      calls += 1;
      headers.push([request.url, request.headers["x-team"], request.headers["content-type"]]);
      if (status === 200) {
        const body = JSON.parse(Buffer.concat(chunks).toString()) as {
          readonly resourceSpans: readonly {
            readonly scopeSpans: readonly { readonly spans: OtlpSpan[] }[];
          }[];
        };
        spans.push(
          ...body.resourceSpans.flatMap(({ scopeSpans }) => scopeSpans.flatMap((each) => each.spans)),
        );
      }
      response.writeHead(status).end("{}");
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  return { url: `http://127.0.0.1:${port}/`, spans, headers, calls: () => calls };
}

async function startTraced(env: Readonly<Record<string, string>>) {
  const controller = await startController({
    stateDirectory: makeTestDirectory(),
    listen: "127.0.0.1:0",
    tracing: otlpTarget(env),
    log: pino({ level: "silent" }),
  });
  let isOver = false;
  const end = async (): Promise<void> => {
    if (isOver) return;
    isOver = true;
    await agent[Symbol.asyncDispose]();
    await controller[Symbol.asyncDispose]();
  };
  onTestFinished(end);
  const { url, agentToken: token } = controller;
  const devices = [fakeDevice(0, 4n * GiB)];
  const agent = await new FakeAgent({ url, token, clock: systemClock, node: "node-a", devices }).start();
  agent.mayLoseController = true;
  const claims = createClient(ClaimService, makeTransport(url, controller.userToken));
  return { claims, agent, end };
}

test("a claim's life is one trace: its wait, its program's attaching, the first kernel, and the whole", async () => {
  const collector = await startCollector();
  const { claims, agent, end } = await startTraced({
    OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
    OTEL_EXPORTER_OTLP_HEADERS: "x-team=gpu%20pool",
  });
  await claims.createClaim({ claim: { name: "first", exclusive: true, leaseSeconds: 3600 } });
  await claims.createClaim({ claim: { name: "second", exclusive: true, leaseSeconds: 3600 } });
  const { ticket } = await claims.createTicket({ claim: "first", program: "train", clientPid: 4711 });
  await agent.openSession(ticket);
  await expect
    .poll(() => collector.spans.map(({ name }) => name).toSorted())
    .toEqual(["attach", "first kernel", "wait"]);
  // The second one waits until the first one has ended.
  await claims.releaseClaim({ name: "first" });
  await expect.poll(() => collector.spans.filter(({ name }) => name === "wait").length).toBe(2);
  await end();
  const of = (claim: string) =>
    collector.spans.filter(({ attributes }) =>
      attributes.some(
        ({ key, value }) => key === "millpond.claim" && "stringValue" in value && value.stringValue === claim,
      ),
    );
  const first = of("first");
  const root = first.find(({ name }) => name === "claim");
  expect(root?.parentSpanId).toBeUndefined();
  expect(root?.traceId).toMatch(/^[0-9a-f]{32}$/);
  const parts = first.filter(({ name }) => name !== "claim");
  expect(parts.map(({ name }) => name)).toEqual(["wait", "attach", "first kernel"]);
  let endOfLast = BigInt(root?.startTimeUnixNano ?? 0);
  for (const { traceId, parentSpanId, startTimeUnixNano, endTimeUnixNano } of parts) {
    expect([traceId, parentSpanId]).toEqual([root?.traceId, root?.spanId]);
    // Each continues where the previous one ended.
    expect(BigInt(startTimeUnixNano)).toBe(endOfLast);
    endOfLast = BigInt(endTimeUnixNano);
    expect(endOfLast).toBeGreaterThanOrEqual(BigInt(startTimeUnixNano));
  }
  expect(endOfLast).toBeLessThanOrEqual(BigInt(root?.endTimeUnixNano ?? 0));
  expect(new Set(collector.spans.map(({ spanId }) => spanId)).size).toBe(collector.spans.length);
  const second = of("second");
  expect(second.map(({ name }) => name)).toEqual(["wait"]);
  expect(second[0]?.traceId).not.toBe(root?.traceId);
  expect(collector.headers[0]).toEqual(["/v1/traces", "gpu pool", "application/json"]);
});

test("a collector that fails hinders no claim, and is asked again while it says so", async () => {
  const collector = await startCollector(503, 503, 200);
  const { claims, end } = await startTraced({ OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: `${collector.url}own` });
  await claims.createClaim({ claim: { name: "a", memoryBytes: GiB, leaseSeconds: 3600 } });
  await claims.releaseClaim({ name: "a" });
  await end();
  expect(collector.spans.map(({ name }) => name)).toEqual(["wait", "claim"]);
  expect(collector.calls()).toBe(3);
  expect(collector.headers[0]).toEqual(["/own", undefined, "application/json"]);

  const wrong = await startCollector(400);
  const other = await startTraced({ OTEL_EXPORTER_OTLP_ENDPOINT: wrong.url });
  await other.claims.createClaim({ claim: { name: "a", memoryBytes: GiB, leaseSeconds: 3600 } });
  await other.end();
  expect(wrong.calls()).toBe(1);
});

test("nothing is traced unless the usual variables name a collector", () => {
  expect(otlpTarget({})).toBeUndefined();
  expect(otlpTarget({ OTEL_EXPORTER_OTLP_ENDPOINT: "" })).toBeUndefined();
  expect(
    otlpTarget({ OTEL_EXPORTER_OTLP_ENDPOINT: "http://c:4318", OTEL_SDK_DISABLED: "true" }),
  ).toBeUndefined();
  expect(otlpTarget({ OTEL_EXPORTER_OTLP_ENDPOINT: "http://c:4318/x/" })?.url).toBe(
    "http://c:4318/x/v1/traces",
  );
  expect(() => otlpTarget({ OTEL_EXPORTER_OTLP_ENDPOINT: "nowhere" })).toThrow(TypeError);
});
