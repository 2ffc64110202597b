// SPDX-License-Identifier: Apache-2.0

import { create, fromBinary, fromJsonString, toBinary, toJson } from "@bufbuild/protobuf";
import { createClient } from "@connectrpc/connect";
import { createConnectTransport, createGrpcWebTransport } from "@connectrpc/connect-node";
import { ClaimService, ListClaimsResponseSchema, ListEventsResponseSchema, PoolService } from "@millpond/api";
import { expect, test } from "vitest";
import { FairTurns } from "../auth/fairness/fair-turns.ts";
import { GiB, TestPool } from "../testing/test-pool.ts";
import { jsonOptions, serializeInTurns } from "./serialized-answers.ts";

const claims = create(ListClaimsResponseSchema, {
  claims: Array.from({ length: 37 }, (_, i) => ({
    name: `claim-"${i}"`,
    gpus: i,
    memoryBytes: BigInt(i) << 40n,
    labels: { rack: `r${i}` },
    allocation:
      i % 3 === 0 ? { claim: "x", node: "node", devices: [{ uuid: "u", memoryBytes: 1n }] } : undefined,
  })),
});

test.each([
  ["a list", ListClaimsResponseSchema, claims],
  ["an empty list", ListClaimsResponseSchema, create(ListClaimsResponseSchema)],
  ["no fields", ListEventsResponseSchema, create(ListEventsResponseSchema)],
] as const)("%s is written in turns as in one go", async (_what, schema, message) => {
  const turns = new FairTurns();
  const reader = { name: "reader", tenant: "tenant" };
  const json = await turns.take(reader, (own) => serializeInTurns(schema, message, "json", own));
  expect(JSON.parse(Buffer.from(json).toString())).toEqual(toJson(schema, message, jsonOptions));
  expect(fromJsonString(schema, Buffer.from(json).toString())).toEqual(message);
  const binary = await turns.take(reader, (own) => serializeInTurns(schema, message, "binary", own));
  expect(fromBinary(schema, binary)).toEqual(message);
  expect(fromBinary(schema, toBinary(schema, message))).toEqual(message);
});

test("a long list is the same in all protocols and encodings, and gives the thread to others", async () => {
  const pool = await TestPool.start({ "node-a": [GiB] });
  for (let each = 0; each < 300; each++) {
    await pool.claims.createClaim({ claim: { name: `claim-${each}`, memoryBytes: 2n << 20n, gpus: 1 } });
  }
  const { claims: direct } = await pool.claims.listClaims({});
  expect(direct).toHaveLength(300);
  const withToken = {
    baseUrl: pool.controller.url,
    httpVersion: "1.1" as const,
    interceptors: [
      (next: (request: never) => Promise<unknown>) => async (request: { header: Headers }) => {
        request.header.set("Authorization", `Bearer ${pool.controller.userToken}`);
        return await next(request as never);
      },
    ],
  } as unknown as Parameters<typeof createConnectTransport>[0];
  const transports = [
    createConnectTransport({ ...withToken, useBinaryFormat: false }),
    createConnectTransport({ ...withToken, useBinaryFormat: true, defaultTimeoutMs: 60_000 }),
    createGrpcWebTransport(withToken),
    createGrpcWebTransport({ ...withToken, useBinaryFormat: false }),
  ];
  for (const transport of transports) {
    const answer = await createClient(ClaimService, transport).listClaims({});
    expect(answer.claims.map(({ name }) => name)).toEqual(direct.map(({ name }) => name));
    await expect(createClient(ClaimService, transport).explainClaim({ name: "absent" })).rejects.toThrow(
      /MILLPOND_E_NOT_FOUND/,
    );
    expect((await createClient(PoolService, transport).listNodes({})).nodes).toHaveLength(1);
  }
  const encodings = ["gzip", "identity", "br", "gzip;q=0"];
  for (const [index, encoding] of encodings.entries()) {
    const response = await fetch(`${pool.controller.url}/millpond.v1.ClaimService/ListClaims`, {
      method: "POST",
      headers: {
        authorization: `Bearer ${pool.controller.userToken}`,
        // Media types are case-insensitive.
        "content-type": index % 2 === 0 ? "application/JSON" : "application/json; charset=utf-8",
        "accept-encoding": encoding,
      },
      body: "{}",
    });
    expect(response.headers.get("content-encoding")).toBe(encoding === "gzip" ? "gzip" : null);
    const { claims: read } = (await response.json()) as { claims: { name: string; boundAt: string }[] };
    expect(read.map(({ name }) => name)).toEqual(direct.map(({ name }) => name));
  }
});
