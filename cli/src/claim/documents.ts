// SPDX-License-Identifier: Apache-2.0

// Files that describe claims, queues and tenants.

import type { MessageInitShape } from "@bufbuild/protobuf";
import {
  type ClaimSchema,
  type ClaimValues,
  isName,
  millpondError,
  parseBorrowing,
  parseClaimMembers,
  parseDuration,
  parseName,
  parseQuotaMembers,
  type QueueSchema,
  quote,
  scalarText,
  type TenantSchema,
  toClaimMessage,
} from "@millpond/api";
import { LineCounter, parseAllDocuments } from "yaml";
import { prefixError } from "../command-line/errors.ts";

const apiVersion = "millpond.v1";

/** Default lease of an applied claim, and the longest lease that is possible. */
const defaultLeaseSeconds = 7 * 86_400;

export type Document =
  | {
      readonly kind: "Claim";
      readonly values: ClaimValues;
      readonly message: MessageInitShape<typeof ClaimSchema> & { readonly name: string };
    }
  | {
      readonly kind: "Queue";
      readonly message: MessageInitShape<typeof QueueSchema> & { readonly name: string };
    }
  | {
      readonly kind: "Tenant";
      readonly message: MessageInitShape<typeof TenantSchema> & { readonly name: string };
    };

type Members = Readonly<Record<string, unknown>>;

/**
 * Reads YAML, of which JSON is a part. Refuses members that it does not know.
 *
 * @param source where the text is from, for messages
 * @throws MILLPOND_E_INVALID
 */
export function readDocuments(text: string, source: string): readonly Document[] {
  // No aliases: a short text could expand into a huge one.
  const lineCounter = new LineCounter();
  const parsed = parseAllDocuments(text, { logLevel: "error", uniqueKeys: true, lineCounter });
  const documents = Array.isArray(parsed) ? parsed : [];
  const values = documents.map((document, position) => {
    const [error] = [...document.errors, ...document.warnings];
    if (error !== undefined) {
      throw millpondError(
        "MILLPOND_E_INVALID",
        `${source}: ${error.message.split("\n")[0]?.replace(/:$/, "") ?? "it is not YAML"}`,
      );
    }
    const { line } = lineCounter.linePos(document.contents?.range?.[0] ?? 0);
    return {
      place: documents.length > 1 ? `${source}, document ${position + 1} at line ${line}` : source,
      value: toPlain(document, source),
    };
  });
  const found = values.filter(({ value }) => value !== null);
  if (found.length === 0) throw millpondError("MILLPOND_E_INVALID", `${source} describes nothing`);
  const seen = new Set<string>();
  return found.map(({ place, value }) => {
    try {
      const document = readDocument(value);
      refuseDouble(document, seen);
      return document;
    } catch (error) {
      throw prefixError(error, place);
    }
  });
}

function refuseDouble({ kind, message: { name } }: Document, seen: Set<string>): void {
  const key = `${kind} ${name}`;
  if (seen.has(key)) throw millpondError("MILLPOND_E_INVALID", `it describes the ${kind} ${name} twice`);
  seen.add(key);
}

function toPlain(document: { toJS(options: { maxAliasCount: number }): unknown }, source: string): unknown {
  try {
    return document.toJS({ maxAliasCount: 0 });
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw millpondError("MILLPOND_E_INVALID", `${source}: ${why}`, { cause });
  }
}

function readDocument(value: unknown): Document {
  if (!isMembers(value)) throw millpondError("MILLPOND_E_INVALID", "a document is not a map of members");
  const { apiVersion: version = apiVersion, kind, ...members } = value;
  if (version !== apiVersion) {
    throw millpondError(
      "MILLPOND_E_INVALID",
      `apiVersion is ${quote(scalarText(version))}, not ${apiVersion}`,
    );
  }
  switch (kind) {
    case "Claim":
      return readClaim(members);
    case "Queue":
      return readQueue(members);
    case "Tenant":
      return readTenant(members);
    default:
      throw millpondError(
        "MILLPOND_E_INVALID",
        kind === undefined
          ? "kind is missing: it is one of Claim, Queue, Tenant"
          : `kind is ${quote(scalarText(kind))}, which is not one of Claim, Queue, Tenant`,
      );
  }
}

function readClaim({ name, lease, ...members }: Members): Document {
  const values = parseClaimMembers(members);
  const message = {
    ...toClaimMessage(values),
    name: readName(name),
    leaseSeconds: lease === undefined ? defaultLeaseSeconds : parseDuration(scalarText(lease)),
  };
  return { kind: "Claim", values, message };
}

function readQueue(members: Members): Document {
  const { name, parent, weight = 1, borrowing, guaranteed, limit, ...others } = members;
  refuseOthers("queue", others);
  if (typeof weight !== "number" || !Number.isInteger(weight) || weight < 1) {
    throw millpondError(
      "MILLPOND_E_INVALID",
      `weight: ${quote(scalarText(weight))} is not a whole number from 1`,
    );
  }
  return {
    kind: "Queue",
    message: {
      name: readName(name),
      parent: parent === undefined ? "" : parseName(scalarText(parent), "parent"),
      weight,
      borrowing: parseBorrowing(borrowing === undefined ? "any" : scalarText(borrowing)),
      guaranteed: readQuota("guaranteed", guaranteed),
      limit: readQuota("limit", limit),
    },
  };
}

function readTenant({ name, limit, userLimit, users = {}, ...others }: Members): Document {
  refuseOthers("tenant", others);
  if (!isMembers(users)) {
    throw millpondError("MILLPOND_E_INVALID", "users is not a map such as {ann: {gpus: 4}}");
  }
  const own = Object.entries(users).map(([user, quota]) => ({
    user,
    limit: readQuota(`users.${user}`, quota),
  }));
  return {
    kind: "Tenant",
    message: {
      name: readName(name),
      limit: readQuota("limit", limit),
      // Even if the file does not mention users: it describes the complete settings.
      userLimits: {
        ...(userLimit === undefined ? {} : { each: readQuota("userLimit", userLimit) }),
        users: own.toSorted((a, b) => (a.user < b.user ? -1 : 1)),
      },
    },
  };
}

function readQuota(what: string, value: unknown) {
  if (value === undefined) return {};
  if (!isMembers(value)) {
    throw millpondError("MILLPOND_E_INVALID", `${what} is not a map such as {gpus: 8, memory: 1Ti}`);
  }
  try {
    return parseQuotaMembers(
      Object.fromEntries(Object.entries(value).map(([key, each]) => [key, scalarText(each)])),
    );
  } catch (error) {
    throw prefixError(error, what);
  }
}

function readName(name: unknown): string {
  if (typeof name === "string" && isName(name)) return name;
  if (name === undefined) throw millpondError("MILLPOND_E_INVALID", "name is missing");
  const isText = typeof name === "string";
  const what = isText ? "which is not a name" : "which YAML reads as something other than a string";
  throw millpondError("MILLPOND_E_INVALID", `name is ${quote(scalarText(name))}, ${what}`, {
    remedy: isText ? "Give it a name of lower-case letters, digits and hyphens." : "Write it in quotes.",
  });
}

function refuseOthers(kind: string, others: Members): void {
  const [other] = Object.keys(others);
  if (other !== undefined)
    throw millpondError("MILLPOND_E_INVALID", `a ${kind} has no member ${quote(other)}`);
}

function isMembers(value: unknown): value is Members {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
