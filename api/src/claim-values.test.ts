// SPDX-License-Identifier: Apache-2.0

import { expect, test } from "vitest";
import { type ClaimFieldName, claimFieldNames, claimFieldSpecs } from "./claim-fields.ts";
import {
  type ClaimValues,
  formatClaimVariables,
  parseClaimField,
  parseClaimMembers,
  parseClaimVariables,
  toClaimMessage,
} from "./claim-values.ts";
import { ClaimSchema } from "./gen/millpond/v1/claim_pb.ts";

/** For each field a text that is not its default, and its value in the API. */
const samples: Readonly<Record<ClaimFieldName, readonly [text: string, message: Record<string, unknown>]>> = {
  gpus: ["3", { gpus: 3 }],
  memory: ["1.5Gi", { memoryBytes: 3n << 29n }],
  compute: ["7%", { computePercent: 7 }],
  lazy: ["yes", { lazy: true }],
  lazyIdle: ["10m", { lazyIdleSeconds: 600 }],
  exclusive: ["1", { exclusive: true }],
  model: ["H200,A100", { models: ["H200", "A100"] }],
  minCapability: ["9.0", { minComputeCapability: "9.0" }],
  pool: ["gold", { pool: "gold" }],
  tenant: ["team-a", { tenant: "team-a" }],
  queue: ["research", { queue: "research" }],
  priority: ["-7", { priority: -7 }],
  preemptible: ["true", { preemptible: true }],
  gang: ["g", { gang: "g" }],
  gangSize: ["4", { gangSize: 4 }],
  placement: ["spread", { placement: 3 }],
  locality: ["any", { locality: 3 }],
  sameNode: ["on", { sameNode: true }],
  labels: ["app=web,team=a", { labels: { app: "web", team: "a" } }],
  nodeLabels: ["zone=b", { nodeLabels: { zone: "b" } }],
  affinity: ["app=db", { affinity: { app: "db" } }],
  antiAffinity: ["app=noisy", { antiAffinity: { app: "noisy" } }],
  timeLimit: ["1h30m", { timeLimitSeconds: 5400 }],
  idleLimit: ["90", { idleLimitSeconds: 90 }],
  serviceClass: ["best-effort", { serviceClass: 3 }],
  nodeLoss: ["fail", { nodeLoss: 3 }],
  grace: ["5s", { graceSeconds: 5 }],
};

test("a field is the same as an option, as a variable, as a member of a file, and in the API", () => {
  const none = toClaimMessage({});
  for (const name of claimFieldNames) {
    const [text, message] = samples[name];
    const values: ClaimValues = parseClaimField(name, text);
    expect(parseClaimVariables({ [claimFieldSpecs[name].env]: text }), name).toEqual(values);
    expect(parseClaimMembers({ [name]: text }), name).toEqual(values);
    expect(parseClaimVariables(Object.fromEntries(formatClaimVariables(values))), name).toEqual(values);
    expect(toClaimMessage(values), name).toEqual({ ...none, ...message });
    expect(message, name).not.toEqual(
      Object.fromEntries(Object.keys(message).map((key) => [key, Reflect.get(none, key)])),
    );
  }
});

test("whatever the API lets a claim ask can be written", () => {
  // Set by the caller that creates the claim: owner, host, lease and the meeting point of a gang; and by the Kubernetes
  // operator: the devices that Kubernetes' scheduler has chosen.
  const byCaller = ["name", "owner", "leaseSeconds", "sessionBound", "clientHost", "rendezvous"];
  const others = [...byCaller, "onlyNode", "onlyDevices"];
  const asked = ClaimSchema.fields.filter(({ number }) => number < 20 || (number >= 30 && number < 50));
  const written = Object.keys(toClaimMessage({}));
  expect(written.concat(others).toSorted()).toEqual(asked.map(({ localName }) => localName).toSorted());
});

test("members of a file may be what YAML makes of them", () => {
  expect(
    parseClaimMembers({
      gpus: 2,
      memory: 0.5,
      compute: 50,
      lazy: true,
      priority: -3,
      minCapability: 9,
      model: ["H200"],
      labels: { app: "web", port: 80 },
      timeLimit: 60,
    }),
  ).toEqual({
    gpus: 2,
    memory: { kind: "percent", percent: 50 },
    compute: 50,
    lazy: true,
    priority: -3,
    minCapability: "9.0",
    model: ["H200"],
    labels: { app: "web", port: "80" },
    timeLimit: 60,
  });
  expect(parseClaimMembers({ model: [], labels: {} })).toEqual({});
});
