// SPDX-License-Identifier: Apache-2.0

import { create } from "@bufbuild/protobuf";
import { Code, ConnectError, createClient, type Transport } from "@connectrpc/connect";
import { describe, expect, test } from "vitest";
import { GetVersionResponseSchema, leaderHeader, millpondError, PoolService } from "@millpond/api";
import { makeFailoverTransport, splitAddresses } from "./failover.ts";

type Behaviour =
  | "leads"
  | "says nothing"
  | "refuses connections"
  | "breaks off"
  | "is stopping"
  | { readonly follows: string };

function failureOf(behaviour: Exclude<Behaviour, "leads" | "says nothing">): ConnectError {
  if (typeof behaviour === "object") {
    const error = millpondError("MILLPOND_E_NOT_LEADER", "this one follows");
    if (behaviour.follows !== "") error.metadata.set(leaderHeader, behaviour.follows);
    return error;
  }
  switch (behaviour) {
    case "refuses connections":
      return ConnectError.from(
        Object.assign(new Error("connect"), { code: "ECONNREFUSED" }),
        Code.Unavailable,
      );
    case "breaks off":
      return ConnectError.from(Object.assign(new Error("read"), { code: "ECONNRESET" }), Code.Aborted);
    case "is stopping":
      return millpondError("MILLPOND_E_SHUTTING_DOWN", "it ends");
  }
}

/** Controllers by their addresses, with a record of which were called. */
function controllers(behaviours: Record<string, Behaviour>) {
  const asked: string[] = [];
  const makeTransport = (address: string): Transport => ({
    unary: async (method, signal, timeoutMs) => {
      asked.push(address);
      const behaviour = behaviours[address] ?? "refuses connections";
      if (behaviour === "says nothing") {
        const limits = [signal, timeoutMs === undefined ? undefined : AbortSignal.timeout(timeoutMs)];
        const given = AbortSignal.any(limits.filter((each) => each !== undefined));
        await new Promise((resolve) => given.addEventListener("abort", resolve));
        throw ConnectError.from(given.reason);
      }
      if (behaviour !== "leads") throw failureOf(behaviour);
      const message = create(GetVersionResponseSchema, { version: address });
      // The answers of the test's service.
      return {
        stream: false,
        service: method.parent,
        method,
        header: new Headers(),
        trailer: new Headers(),
        message,
      } as never;
    },
    stream: async () => {
      throw new Error("no method streams");
    },
  });
  const client = (patienceMs = 0, isRepeatable = false, answerMs?: number) =>
    createClient(
      PoolService,
      makeFailoverTransport({
        addresses: Object.keys(behaviours),
        makeTransport,
        patienceMs,
        isRepeatable: () => isRepeatable,
        ...(answerMs !== undefined && { answerMs }),
      }),
    );
  return { asked, client, behaviours };
}

describe("with several controllers", () => {
  test("the one that leads answers, whichever is asked first, and is asked first from then on", async () => {
    const { asked, client } = controllers({ a: "refuses connections", b: { follows: "" }, c: "leads" });
    const pool = client();
    expect((await pool.getVersion({})).version).toBe("c");
    expect((await pool.getVersion({})).version).toBe("c");
    expect(asked).toEqual(["a", "b", "c", "c"]);
  });

  test("one that follows names the one that leads, which need not be in the list", async () => {
    const { asked, client, behaviours } = controllers({
      "http://a": { follows: "http://z" },
      "http://b": "leads",
    });
    behaviours["http://z"] = "leads";
    expect((await client().getVersion({})).version).toBe("http://z");
    expect(asked).toEqual(["http://a", "http://z"]);
  });

  test("nobody is sent from TLS to where there is none", async () => {
    const { asked, client, behaviours } = controllers({
      "https://a": { follows: "http://z" },
      "https://b": "leads",
    });
    behaviours["http://z"] = "leads";
    expect((await client().getVersion({})).version).toBe("https://b");
    expect(asked).toEqual(["https://a", "https://b"]);
  });

  test.each(["breaks off", "is stopping"] as const)(
    "a call to one that %s is not made again unless it may be; the next goes elsewhere",
    async (behaviour) => {
      const { asked, client } = controllers({ a: behaviour, b: "leads" });
      const careful = client();
      await expect(careful.getVersion({})).rejects.toThrow(/read|it ends/);
      expect((await careful.getVersion({})).version).toBe("b");
      expect(asked).toEqual(["a", "b"]);
      expect((await client(0, true).getVersion({})).version).toBe("b");
    },
  );

  test("one at which nobody is, is not asked again because another believes that it leads", async () => {
    const { asked, client, behaviours } = controllers({
      "http://a": "refuses connections",
      "http://b": { follows: "http://a" },
    });
    const answer = client(60_000).getVersion({});
    while (asked.length < 4) await new Promise((resolve) => setTimeout(resolve, 10));
    behaviours["http://b"] = "leads";
    expect((await answer).version).toBe("http://b");
    expect(asked.filter((address) => address === "http://a")).toHaveLength(1);
  });

  test("one that says nothing is given up, and another asked, where a call may be repeated", async () => {
    const { asked, client } = controllers({ a: "says nothing", b: "leads" });
    const pool = client(0, true, 50);
    expect((await pool.getVersion({})).version).toBe("b");
    await expect(client(0, false, 50).getVersion({}, { timeoutMs: 50 })).rejects.toThrow(/timed out|timeout/);
    expect(asked).toEqual(["a", "b", "a"]);
  });

  test("who wants no answer any more goes on with the same one; who has waited too long does not", async () => {
    const { asked, client, behaviours } = controllers({ a: "says nothing", b: "leads" });
    const pool = client();
    const stop = new AbortController();
    const left = pool.getVersion({}, { signal: stop.signal });
    stop.abort();
    await expect(left).rejects.toThrow("aborted");
    await expect(pool.getVersion({}, { signal: AbortSignal.timeout(50) })).rejects.toThrow(/abort|time/);
    expect((await pool.getVersion({})).version).toBe("b");
    behaviours["b"] = "says nothing";
    expect(asked).toEqual(["a", "a", "b"]);
  });

  test("where none leads yet, they are asked again", async () => {
    const { asked, client, behaviours } = controllers({ a: "refuses connections", b: { follows: "" } });
    const answer = client(60_000).getVersion({});
    while (asked.length < 5) await new Promise((resolve) => setTimeout(resolve, 10));
    behaviours["b"] = "leads";
    expect((await answer).version).toBe("b");
  });

  test("where none leads and there is no time, that is what is said", async () => {
    const { client } = controllers({ a: { follows: "" }, b: "refuses connections" });
    await expect(client().getVersion({})).rejects.toThrow(/\[MILLPOND_E_NOT_LEADER\]$/);
  });

  test("where nobody is there, each is asked and the failure told", async () => {
    const { asked, client } = controllers({ a: "refuses connections", b: "refuses connections" });
    await expect(client(60_000).getVersion({})).rejects.toThrow("connect");
    expect(new Set(asked)).toEqual(new Set(["a", "b"]));
  });
});

test("a list of addresses has commas, and may have blanks and slashes at the ends", () => {
  expect(splitAddresses("http://a:1/, https://b ,,")).toEqual(["http://a:1", "https://b"]);
});
