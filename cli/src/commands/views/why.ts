// SPDX-License-Identifier: Apache-2.0

import { type Claim, ClaimState, type ExplainClaimResponse, formatAge, formatDuration } from "@millpond/api";
import { exitStatus } from "../../command-table/command-table.ts";
import type { Values } from "../../command-line/command-values.ts";
import { type Connection, openConnection } from "../../connection/connection.ts";
import { findOne } from "../../output/find.ts";
import { claimKind } from "../../output/kinds.ts";
import { claimStateWord, claimToJson, explanationToJson, renderObject } from "../../output/resources.ts";
import { type Column, layOut, layOutFields } from "../../output/table.ts";

export async function run(values: Values<"why">, [name]: readonly string[]): Promise<number> {
  const connection = openConnection(values);
  if (name === undefined) return await listWaiting(values, connection);
  const found = await findOne(claimKind, connection, name);
  const explanation = await connection.claims.explainClaim({ name: found.name });
  const now = Math.floor(Date.now() / 1000);
  process.stdout.write(
    values.output === "json"
      ? renderObject("Explanation", toJson(explanation))
      : `${render(explanation, now)}\n`,
  );
  return exitStatus.ok;
}

const waitingColumns = (nowSeconds: number): readonly Column<Claim>[] => [
  { title: "QUEUE", cell: ({ queue }) => queue },
  { title: "POSITION", cell: ({ queuePosition }) => String(queuePosition), align: "right" },
  { title: "CLAIM", cell: ({ name }) => name },
  {
    title: "WAITS",
    cell: ({ waitingSince }) => formatAge(Math.max(0, nowSeconds - Number(waitingSince))),
    align: "right",
  },
  { title: "FOR", cell: ({ reason }) => reason },
];

/** All waiting claims by queue, in the queue's order, each with its reason. */
async function listWaiting({ output }: Values<"why">, { claims }: Connection): Promise<number> {
  const { claims: all } = await claims.listClaims({});
  const waiting = all
    .filter(({ state }) => state === ClaimState.PENDING)
    .toSorted((a, b) => (a.queue < b.queue ? -1 : a.queue > b.queue ? 1 : a.queuePosition - b.queuePosition));
  if (output === "json") {
    process.stdout.write(renderObject("ClaimList", { items: waiting.map(claimToJson) }));
  } else if (waiting.length === 0) {
    process.stdout.write("no claim waits\n");
  } else {
    const { lines } = layOut(waitingColumns(Math.floor(Date.now() / 1000)), waiting, { headers: true });
    process.stdout.write(`${lines.join("\n")}\n`);
  }
  return exitStatus.ok;
}

function toJson(explanation: ExplainClaimResponse) {
  const { claim } = explanation;
  return { claim: claim === undefined ? null : claimToJson(claim), ...explanationToJson(explanation) };
}

/** Why the time at which a claim gets room is unknown, by its obstacle. */
const unknowns: Readonly<Record<string, string>> = {
  room: "the claims ahead of it have no time limit",
  quota: "it waits until other claims release quota",
  gang: "it waits for the rest of its gang",
};

/** Renders the explanation as text: one sentence, then the numbers behind it. */
export function render(explanation: ExplainClaimResponse, nowSeconds: number): string {
  const { claim } = explanation;
  if (claim === undefined) return "";
  const since = (seconds: bigint) => formatAge(Math.max(0, nowSeconds - Number(seconds)));
  if (claim.state !== ClaimState.PENDING) {
    const where =
      claim.allocation === undefined ? "" : ` to ${claim.allocation.node} for ${since(claim.boundAt)}`;
    const reason = claim.reason === "" ? "" : `: ${claim.reason}`;
    const head = `claim ${claim.name} is ${claimStateWord(claim.state)}${where}${reason}`;
    const facts = factFields(explanation);
    return facts.length === 0 ? head : `${head}\n${layOutFields(facts)}`;
  }
  const fields = layOutFields(waitingFields(explanation, nowSeconds));
  return `claim ${claim.name} has waited ${since(claim.waitingSince)}: ${claim.reason}\n${fields}`;
}

/** The present amounts and limits of its queue, that queue's ancestors, its tenant and its node. */
export function factFields({ facts, factDetails }: ExplainClaimResponse): [string, string][] {
  return factDetails.length === 0
    ? // The controller is of an earlier release.
      facts.map((fact) => ["  fact", fact])
    : factDetails.map(({ subject, reason }) => [`  ${subject}`, reason?.text ?? ""]);
}

/** The fields of a waiting claim: its position, the claims it waits for, and the expected time. */
export function waitingFields(explanation: ExplainClaimResponse, nowSeconds: number): [string, string][] {
  const { claim, obstacle, queueLength, expectedAt, nextReleaseAt, nextReleaseClaim } = explanation;
  if (claim === undefined) return [];
  const next = nextReleaseClaim === "" ? "a claim of another tenant" : `claim ${nextReleaseClaim}`;
  const within = (at: bigint) => `within ${formatDuration(Math.max(0, Number(at) - nowSeconds))}`;
  const { queuePosition, queue, priority } = claim;
  return [
    ["  position", `${queuePosition} of ${queueLength} in queue ${queue}, priority ${priority}`],
    ...factFields(explanation),
    ["  waits for", whatItWaitsFor(explanation)],
    ["  expected", expectedAt === 0n ? unknownTime(obstacle) : within(expectedAt)],
    ["  next release", nextReleaseAt === 0n ? "not known" : `${next}, ${within(nextReleaseAt)}`],
  ];
}

function unknownTime(obstacle: string): string {
  if (obstacle === "limit") return "never, unless that limit is raised: this claim alone exceeds it";
  return `not known: ${unknowns[obstacle] ?? unknowns["room"]}`;
}

const mostNames = 8;

/** The subject of a claim's wait when no other claims are in its way, by its obstacle. */
const nothingToWaitFor: Readonly<Record<string, string>> = {
  gang: "the rest of its gang",
  limit: "an administrator",
};

function whatItWaitsFor({ waitsFor, waitsForHidden: hidden, obstacle }: ExplainClaimResponse): string {
  const more = waitsFor.length - mostNames;
  // Not all claims that hold a quota must end.
  const end = obstacle === "quota" && waitsFor.length + hidden > 1 ? "the end of some of" : "the end of";
  const parts = [
    ...waitsFor.slice(0, mostNames),
    ...(more > 0 ? [`${more} more`] : []),
    ...(hidden > 0 ? [hidden === 1 ? "a claim of another tenant" : `${hidden} claims of other tenants`] : []),
  ];
  const last = parts.at(-1);
  if (last === undefined) return nothingToWaitFor[obstacle] ?? "nothing known";
  return `${end} ${parts.length === 1 ? last : `${parts.slice(0, -1).join(", ")} and ${last}`}`;
}
