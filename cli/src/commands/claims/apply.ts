// SPDX-License-Identifier: Apache-2.0

import { create, isMessage } from "@bufbuild/protobuf";
import {
  type Claim,
  ClaimSchema,
  ClaimState,
  errorCodeOf,
  millpondError,
  QueueSchema,
  QuotaSchema,
  quotaText,
  ServiceClass,
  TenantSchema,
  UserLimitsSchema,
} from "@millpond/api";
import { warnOfGuarantees } from "../../claim/guarantees.ts";
import { exitStatus } from "../../command-table/command-table.ts";
import type { Values } from "../../command-line/command-values.ts";
import { type Connection, openConnection } from "../../connection/connection.ts";
import { bootId } from "../../host/boot-id.ts";
import { type Document, readDocuments } from "../../claim/documents.ts";
import { readInputFile } from "../../command-line/input-file.ts";
import { prefixError } from "../../command-line/errors.ts";
import { claimStateWord } from "../../output/resources.ts";

export async function run(values: Values<"apply">): Promise<number> {
  if (values.file === undefined) {
    throw millpondError("MILLPOND_E_INVALID", "no file is given", { remedy: "Give one with -f." });
  }
  const source = values.file === "-" ? "standard input" : values.file;
  // The whole file is read and checked before anything is changed.
  const documents = readDocuments(await readInputFile(values.file, "file"), source);
  const connection = openConnection(values);
  const carryOut = values.delete ? deleteOne : values.dryRun ? planOne : applyOne;
  // A queue is deleted before its parent, which comes first in the file.
  for (const document of values.delete ? documents.toReversed() : documents) {
    const subject = `${document.kind.toLowerCase()}/${document.message.name}`;
    try {
      process.stdout.write(`${subject} ${await carryOut(document, connection, values)}\n`);
    } catch (error) {
      throw prefixError(error, subject);
    }
  }
  return exitStatus.ok;
}

const comparedMembers = {
  Queue: ["parent", "weight", "borrowing", "guaranteed", "limit"],
  Tenant: ["limit", "userLimits"],
} as const;

/** Returns the changes that applying a document would make. */
async function planOne(document: Document, { claims, queues }: Connection): Promise<string> {
  switch (document.kind) {
    case "Queue": {
      const { queues: before } = await queues.listQueues({});
      return planOf(before, create(QueueSchema, document.message), comparedMembers.Queue);
    }
    case "Tenant": {
      const { tenants: before } = await queues.listTenants({});
      return planOf(before, create(TenantSchema, document.message), comparedMembers.Tenant);
    }
    case "Claim":
      try {
        return await compare(document, claims);
      } catch (error) {
        if (errorCodeOf(error) !== "MILLPOND_E_NOT_FOUND") throw error;
        return "would be created";
      }
  }
}

function planOf<T extends { readonly name: string }>(
  before: readonly T[],
  wanted: T,
  members: readonly (keyof T & string)[],
): string {
  const there = before.find(({ name }) => name === wanted.name);
  if (there === undefined) return "would be created";
  const changes = members
    .filter((member) => canonical(there[member]) !== canonical(wanted[member]))
    .map((member) => `${member} from ${formatMember(there[member])} to ${formatMember(wanted[member])}`);
  return changes.length === 0 ? "unchanged" : `would be changed: ${changes.join(", ")}`;
}

/** A member of a queue or tenant, for display. */
function formatMember(value: unknown): string {
  if (isMessage(value, QuotaSchema)) return quotaText(value);
  if (isMessage(value, UserLimitsSchema)) {
    const users = value.users.map(({ user, limit }) => `${user}: ${quotaText(limit)}`);
    return [`each: ${quotaText(value.each)}`, ...users].join("; ");
  }
  return typeof value === "string" ? value || "none" : canonical(value);
}

/** Undoes one document. */
async function deleteOne(
  { kind, message: { name } }: Document,
  { claims, queues }: Connection,
  { dryRun }: Values<"apply">,
): Promise<string> {
  const would = dryRun ? "would be " : "";
  try {
    switch (kind) {
      case "Queue":
        if (!dryRun) await queues.deleteQueue({ name });
        return `${would}deleted`;
      case "Tenant":
        if (!dryRun) await queues.deleteTenant({ name });
        return `${would}deleted`;
      case "Claim":
        if (!dryRun) await claims.releaseClaim({ name });
        return `${would}released`;
    }
  } catch (error) {
    if (errorCodeOf(error) !== "MILLPOND_E_NOT_FOUND") throw error;
    return "is not there";
  }
}

async function applyOne(document: Document, connection: Connection): Promise<string> {
  const { claims, queues } = connection;
  switch (document.kind) {
    case "Queue": {
      const { queues: before } = await queues.listQueues({});
      const { queue } = await queues.putQueue({ queue: document.message });
      await warnOfGuarantees(connection, queue?.guaranteed);
      return changeOf(before, queue, comparedMembers.Queue);
    }
    case "Tenant": {
      const { tenants: before } = await queues.listTenants({});
      const { tenant } = await queues.putTenant({ tenant: document.message });
      return changeOf(before, tenant, comparedMembers.Tenant);
    }
    case "Claim":
      try {
        const message = { ...document.message, clientHost: bootId() };
        const { claim } = await claims.createClaim({ claim: message });
        return claim?.state === ClaimState.PENDING
          ? `waits: ${claim.reason}`
          : claimStateWord(claim?.state ?? 0);
      } catch (error) {
        if (errorCodeOf(error) !== "MILLPOND_E_ALREADY_EXISTS") throw error;
        return await compare(document, claims);
      }
  }
}

/** Returns how an object changed, by comparing these members. */
function changeOf<T extends { readonly name: string }>(
  before: readonly T[],
  now: T | undefined,
  members: readonly (keyof T)[],
): string {
  const there = before.find(({ name }) => name === now?.name);
  if (there === undefined || now === undefined) return "created";
  return members.every((member) => canonical(there[member]) === canonical(now[member]))
    ? "unchanged"
    : "changed";
}

/** Checks that an existing claim makes the same request: applying does not change claims. */
async function compare(
  { message }: Extract<Document, { readonly kind: "Claim" }>,
  claims: Connection["claims"],
): Promise<string> {
  const { claim } = await claims.getClaim({ name: message.name });
  const wanted = create(ClaimSchema, message);
  const differing = claim === undefined ? undefined : firstDifference(wanted, claim);
  if (claim === undefined || differing !== undefined || claim.endedAt !== 0n) {
    const release = `elease it first: \`millpond release ${message.name}\`.`;
    throw millpondError(
      "MILLPOND_E_ALREADY_EXISTS",
      differing === undefined
        ? "it is ending"
        : `it exists with ${differing} ${valueOf(claim, differing)}, and the file has ${valueOf(wanted, differing)}`,
      {
        remedy: isSize(differing)
          ? `Change it with \`millpond resize ${message.name}\`, or r${release}`
          : `R${release}`,
      },
    );
  }
  return "unchanged";
}

function isSize(member = ""): boolean {
  return ["gpus", "memoryBytes", "memoryPercent", "computePercent"].includes(member);
}

/** Returns the first member of the request that differs. The controller fills in members that are not given. */
function firstDifference(wanted: Claim, there: Claim): string | undefined {
  for (const { localName, number } of ClaimSchema.fields) {
    // The same request made on another machine is equal.
    const isAsked = (number < 20 || (number >= 30 && number < 50)) && localName !== "clientHost";
    const [asked, has]: unknown[] = [Reflect.get(wanted, localName), Reflect.get(there, localName)];
    const isFilledIn = (asked === 0 || asked === "") && isDefault(localName, has, wanted);
    if (isAsked && !isFilledIn && canonical(asked) !== canonical(has)) return localName;
  }
  return undefined;
}

/** A member of a claim, for display. */
function valueOf(claim: Claim | undefined, member: string): string {
  const value: unknown = claim === undefined ? undefined : Reflect.get(claim, member);
  return typeof value === "string" && value !== "" ? value : canonical(value);
}

/** Equal texts for equal values, whatever the order of their members. */
function canonical(value: unknown): string {
  return JSON.stringify(value, (_key, each: unknown) => {
    if (typeof each === "bigint") return String(each);
    return typeof each === "object" && each !== null && !Array.isArray(each)
      ? Object.fromEntries(Object.entries(each).sort(([one], [other]) => (one < other ? -1 : 1)))
      : each;
  });
}

/** Whether a value is the one that the controller fills in for a member that is not given. */
function isDefault(
  member: string,
  value: unknown,
  { computePercent, memoryBytes, memoryPercent }: Claim,
): boolean {
  switch (member) {
    case "tenant":
    case "queue":
      return value === "default";
    case "placement":
    case "locality":
    case "nodeLoss":
      return value === 1;
    case "serviceClass":
      return memoryBytes + BigInt(memoryPercent) > 0n && computePercent === 0
        ? value === ServiceClass.BURSTABLE
        : value === ServiceClass.GUARANTEED;
    case "graceSeconds":
      return value === 30;
    case "lazyIdleSeconds":
      return value === 300;
    default:
      return false;
  }
}
