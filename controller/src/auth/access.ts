// SPDX-License-Identifier: Apache-2.0

// Which role may call a method, which methods change something, and which of several controllers answers. Every method
// is in this one table.

import type { DescMethod, DescService, MessageShape } from "@bufbuild/protobuf";
import {
  AccessService,
  AgentService,
  ClaimService,
  millpondError,
  PoolService,
  QueueService,
} from "@millpond/api";
import type { Role } from "../domain/caller.ts";

/** `any` is every caller with a token. */
export type RequiredRole = Role | "any";

interface Rule<I> {
  readonly role: RequiredRole;
  /**
   * How a follower serves the method: it `answers` from durable state, or `asks` the leader on behalf of the caller, as
   * it does for objects that it does not find. Absent: it redirects the caller to the leader.
   */
  readonly follower?: "answers" | "asks";
  /** The cost of the call grows with the pool, so it is scheduled fairly among other such calls. */
  readonly reads?: "lists";
  /** The object that a call changes, for the audit; absent: the call changes nothing that a user decides. */
  readonly changes?: (request: I) => string;
}

type Rules<S extends DescService> = {
  readonly [M in keyof S["method"]]: Rule<MessageShape<S["method"][M]["input"]>>;
};

const claimRules: Rules<typeof ClaimService> = {
  createClaim: { role: "program", changes: ({ claim }) => `claim/${claim?.name ?? ""}` },
  waitClaim: { role: "claim" },
  createTicket: { role: "claim" },
  viewClaim: { role: "claim", follower: "asks" },
  // Returns the same token each time: a program that has one may request it again for a program that it starts.
  createClaimToken: { role: "claim" },
  createProgramToken: { role: "user" },
  releaseClaim: { role: "program", changes: ({ name }) => `claim/${name}` },
  // The same roles as for creating a claim: users choose among the claims of their tenant.
  prioritizeClaim: { role: "user", changes: ({ name }) => `claim/${name}` },
  resizeClaim: { role: "user", changes: ({ name }) => `claim/${name}` },
  getClaim: { role: "claim", follower: "answers" },
  explainClaim: { role: "claim", follower: "asks", reads: "lists" },
  listClaims: { role: "claim", follower: "answers", reads: "lists" },
};

const poolRules: Rules<typeof PoolService> = {
  listNodes: { role: "user", follower: "asks", reads: "lists" },
  getNode: { role: "user", follower: "asks", reads: "lists" },
  cordonNode: {
    role: "admin",
    changes: ({ name, deviceUuid }) => `node/${name}${deviceUuid === "" ? "" : `/${deviceUuid}`}`,
  },
  drainNode: { role: "admin", changes: ({ name }) => `node/${name}` },
  removeNode: { role: "admin", changes: ({ name }) => `node/${name}` },
  labelNode: { role: "admin", changes: ({ name }) => `node/${name}` },
  listDevices: { role: "user", follower: "asks", reads: "lists" },
  listSessions: { role: "claim", follower: "asks", reads: "lists" },
  listEvents: { role: "claim", follower: "answers", reads: "lists" },
  backUp: { role: "admin", changes: () => "state" },
  getVersion: { role: "any", follower: "answers" },
};

const queueRules: Rules<typeof QueueService> = {
  putQueue: { role: "admin", changes: ({ queue }) => `queue/${queue?.name ?? ""}` },
  listQueues: { role: "user", follower: "answers", reads: "lists" },
  deleteQueue: { role: "admin", changes: ({ name }) => `queue/${name}` },
  putTenant: { role: "admin", changes: ({ tenant }) => `tenant/${tenant?.name ?? ""}` },
  listTenants: { role: "user", follower: "answers", reads: "lists" },
  deleteTenant: { role: "admin", changes: ({ name }) => `tenant/${name}` },
  getUsage: { role: "user", follower: "asks", reads: "lists" },
};

const accessRules: Rules<typeof AccessService> = {
  createToken: { role: "tenant-admin", changes: ({ name }) => `token/${name}` },
  listTokens: { role: "tenant-admin", follower: "answers", reads: "lists" },
  revokeToken: { role: "tenant-admin", changes: ({ name }) => `token/${name}` },
  listKeys: { role: "admin", follower: "answers" },
  rotateKey: { role: "admin", changes: () => "signing-key" },
  listAudit: { role: "tenant-admin", follower: "answers", reads: "lists" },
  // It changes nothing in the pool, and its code identifies the user.
  createLoginCode: { role: "user", follower: "answers" },
  createLogin: { role: "user", changes: ({ id }) => `login/${id}` },
  listLogins: { role: "user", follower: "answers", reads: "lists" },
  revokeLogin: { role: "user", changes: ({ id }) => `login/${id}` },
  getCaller: { role: "any", follower: "answers" },
};

const agentRules: Rules<typeof AgentService> = {
  // An agent reports facts, not decisions.
  sync: { role: "agent" },
};

/** The services of the controller. */
export const services: readonly DescService[] = [
  ClaimService,
  PoolService,
  QueueService,
  AccessService,
  AgentService,
];

const table: Readonly<Record<string, Readonly<Record<string, Rule<never>>>>> = {
  [ClaimService.typeName]: claimRules,
  [PoolService.typeName]: poolRules,
  [QueueService.typeName]: queueRules,
  [AccessService.typeName]: accessRules,
  [AgentService.typeName]: agentRules,
};

/** @throws MILLPOND_E_INTERNAL for a method that no role may call */
export function ruleOf(method: DescMethod): Rule<never> {
  const rule = table[method.parent.typeName]?.[method.localName];
  if (rule === undefined) {
    throw millpondError("MILLPOND_E_INTERNAL", `no role may call ${methodName(method)}`);
  }
  return rule;
}

/**
 * Whether a method reads lists: such calls are scheduled fairly. Calls that programs and agents wait for are
 * not.
 */
export function isScheduledFairly(method: DescMethod): boolean {
  return ruleOf(method).reads === "lists";
}

/** `ClaimService/ReleaseClaim`. */
export function methodName({ parent, name }: DescMethod): string {
  return `${parent.name}/${name}`;
}

/** Returns the action of a method for messages to users: `"release claim"`. */
export function inWords({ name }: DescMethod): string {
  return `"${name.replace(/(?<=[a-z])(?=[A-Z])/g, " ").toLowerCase()}"`;
}

/** The roles that each role includes. Administrators do not report nodes. */
const included: Readonly<Record<Role, readonly RequiredRole[]>> = {
  claim: ["any", "claim"],
  program: ["any", "claim", "program"],
  user: ["any", "claim", "program", "user"],
  "tenant-admin": ["any", "claim", "program", "user", "tenant-admin"],
  admin: ["any", "claim", "program", "user", "tenant-admin", "admin"],
  agent: ["any", "agent"],
};

export function mayCall(role: Role, required: RequiredRole): boolean {
  return included[role].includes(required);
}
