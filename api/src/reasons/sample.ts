// SPDX-License-Identifier: Apache-2.0

// One sample reason of each code, for the page and for tests.

import type { Kind, Reason, ReasonCode } from "./args.ts";
import { reasonArgs } from "./args.ts";

const GiB = 1n << 30n;

/** Creates an argument of a kind; `argument` is its name. */
export type MakeArg = (kind: Kind, argument: string) => unknown;

/** A sample reason with all arguments, optional ones included. */
export function sampleReason(code: ReasonCode, make: MakeArg = plainArg): Reason {
  const kinds: Readonly<Record<string, string>> = reasonArgs[code];
  const args = Object.fromEntries(
    Object.entries(kinds)
      // A size is requested in bytes or in percent, not both.
      .filter(([name]) => !(name === "memoryPercent" && "memoryBytes" in kinds))
      .map(([name, kind]) => [name, make(kind.replace("?", "") as Kind, name)]),
  );
  return { code, args } as unknown as Reason;
}

const words: Readonly<Record<string, string>> = {
  node: "node-1",
  device: "node-1/0",
  queue: "research",
  owner: "prod",
  tenant: "a",
  claim: "train",
  name: "research",
  parent: "all",
  scope: "queue",
  capability: "9.0",
  url: "https://10.0.0.7:7170",
  borrowing: "preemptible",
  program: "python",
  why: "it holds 2 GiB",
  note: "new fans",
};

function plainArg(kind: Kind, argument: string): unknown {
  switch (kind) {
    case "text":
    case "unsafeText":
    case "name":
      return words[argument] ?? "what was said";
    case "texts":
      return argument === "devices" ? ["node-1/0", "node-1/1"] : ["H100"];
    case "flag":
      return false;
    case "count":
      return argument === "gpus" || argument === "size" || argument === "members" ? 4 : 2;
    case "percent":
      return 25;
    case "seconds":
      return argument === "waitedSeconds" ? 90 : 30;
    case "gpuMilli":
      return argument === "limitGpuMilli" ? 8000 : 2000;
    case "bytes":
      return argument === "needBytes" || argument === "asksBytes" ? 80n * GiB : 16n * GiB;
    case "labels":
      return { zone: "a" };
    case "quota":
      return { gpuMilli: 8000 };
    case "excess":
      return { resource: "gpuMilli", amount: 9000, limit: 8000 };
    case "holder":
      return argument === "gang" || argument === "unit"
        ? { kind: "gang", name: "nightly", tenant: "b" }
        : { kind: "claim", name: "urgent", tenant: "b" };
    case "holders":
      return [
        { kind: "claim", name: "low", tenant: "b" },
        { kind: "claim", name: "lower", tenant: "b" },
      ];
    case "reason":
      return argument === "because"
        ? sampleReason("lower-priority")
        : argument === "shortage"
          ? sampleReason("memory-taken")
          : sampleReason("no-room");
  }
}
