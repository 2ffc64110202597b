// SPDX-License-Identifier: Apache-2.0

// node flooder.ts CONTROLLER TOKEN AGENT: calls the controller as fast as it answers, with a tenant's token and without one,
// creates as many claims as may wait, and keeps silent connections open to controller and agent. It runs as a separate
// process, which ends with its standard input and then prints what it did.

import { request } from "node:http";
import { connect } from "node:net";

const [controller = "", token = "", agent = ""] = process.argv.slice(2);

/** The number of concurrent callers. */
const callers = 24;
const strangers = 8;
/** The number of concurrent connections that begin a request and never end it. */
const silent = 64;

const counts = { answered: 0, refused: 0, broken: 0, closed: 0 };
let isOver = false;

/** Resolves with the status; 0: there was no answer. */
function call(method: string, body: object, bearer: string | undefined): Promise<number> {
  return new Promise((resolve) => {
    const sent = request(`${controller}/millpond.v1.${method}`, {
      method: "POST",
      headers: {
        "content-type": "application/json",
        ...(bearer === undefined ? {} : { authorization: `Bearer ${bearer}` }),
      },
    });
    sent.on("error", () => resolve(0));
    sent.on("response", (response) => {
      response.resume();
      response.on("close", () => resolve(response.statusCode ?? 0));
    });
    sent.end(JSON.stringify(body));
  });
}

async function keepCalling(
  bearer: string | undefined,
  next: (turn: number) => [string, object],
): Promise<void> {
  for (let turn = 0; !isOver; turn += 1) {
    const status = await call(...next(turn), bearer);
    if (status === 200) counts.answered += 1;
    else if (status !== 0) counts.refused += 1;
    else {
      counts.broken += 1;
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  }
}

function keepSilent(address: string): void {
  const { hostname, port } = new URL(address);
  const socket = connect(Number(port), hostname, () => socket.write("POST /millpond"));
  socket.on("error", () => undefined);
  socket.on("close", () => {
    counts.closed += 1;
    if (!isOver) setTimeout(() => keepSilent(address), 10);
  });
}

const reads = [
  ["ClaimService/ListClaims", {}],
  ["PoolService/ListSessions", {}],
  ["PoolService/ListNodes", {}],
] as const;

/** Reads, and now and then a claim that must wait. */
function nextOf(caller: number): (turn: number) => [string, object] {
  return (turn) => {
    if (turn % 4 !== 0) {
      const [method, body] = reads[turn % reads.length] ?? reads[0];
      return [method, body];
    }
    const claim = { name: `flood-${caller}-${turn}`, gpus: 1, memoryPercent: 100, leaseSeconds: 60 };
    return ["ClaimService/CreateClaim", { claim }];
  };
}

for (let caller = 0; caller < callers; caller += 1) void keepCalling(token, nextOf(caller));
for (let stranger = 0; stranger < strangers; stranger += 1)
  void keepCalling(stranger % 2 === 0 ? undefined : "mp-user-unknown", () => ["ClaimService/ListClaims", {}]);
for (let each = 0; each < silent; each += 1) keepSilent(each % 2 === 0 ? controller : agent);

process.stdin.resume();
process.stdin.on("end", () => {
  isOver = true;
  process.stdout.write(JSON.stringify(counts), () => process.exit(0));
});
