// SPDX-License-Identifier: Apache-2.0

import { create } from "@bufbuild/protobuf";
import {
  type AuditRecord,
  AuditRecordSchema,
  type Claim,
  ClaimSchema,
  type Device,
  DeviceSchema,
  errorCodeOf,
  type Event,
  EventSchema,
  type Login,
  LoginSchema,
  type Node,
  NodeSchema,
  type Queue,
  QueueSchema,
  type Session,
  SessionSchema,
  type Tenant,
  TenantSchema,
  type Token,
  TokenSchema,
} from "@millpond/api";
import type { Connection } from "../connection/connection.ts";
import {
  auditColumns,
  claimColumns,
  deviceColumns,
  eventColumns,
  nodeColumns,
  queueColumns,
  sessionColumns,
  tenantColumns,
  loginColumns,
  tokenColumns,
} from "./columns.ts";
import {
  auditRecordToJson,
  claimToJson,
  deviceToJson,
  eventToJson,
  loginToJson,
  nodeToJson,
  queueToJson,
  sessionToJson,
  tenantToJson,
  tokenToJson,
} from "./resources.ts";
import type { Column } from "./table.ts";

/** How one kind of object is listed, named and shown. */
export interface Kind<T> {
  /** `Node`; the list is a `NodeList`. */
  readonly title: string;
  /** `node`, as in `node/node-a`. */
  readonly word: string;
  /** Plural; absent: the word with an s. */
  readonly plural?: string;
  readonly list: (connection: Connection, options: ListOptions) => Promise<readonly T[]>;
  /** Whether the list holds only objects that are new since `after`. */
  readonly isLog?: boolean;
  /** The last state of an item that is no longer listed; undefined: it is not kept. */
  readonly afterEnd?: (connection: Connection, name: string) => Promise<T | undefined>;
  readonly nameOf: (item: T) => string;
  readonly toJson: (item: T) => object;
  /** An object without values; its JSON has the members of all. */
  readonly blank: () => T;
  readonly columns: (view: View) => readonly Column<T>[];
}

export interface ListOptions {
  /** Also claims that have ended. */
  readonly all: boolean;
  /** Only events after this id; 0: the newest. */
  readonly after: bigint;
}

export interface View {
  readonly nowSeconds: number;
  readonly isWide: boolean;
}

export const nodeKind: Kind<Node> = {
  title: "Node",
  word: "node",
  list: async ({ pool }) => (await pool.listNodes({})).nodes,
  nameOf: (node) => node.name,
  toJson: nodeToJson,
  blank: () => create(NodeSchema),
  columns: ({ nowSeconds }) => nodeColumns(nowSeconds),
};

export const deviceKind: Kind<Device> = {
  title: "Device",
  word: "device",
  list: async ({ pool }) => (await pool.listDevices({})).devices,
  nameOf: (device) => `${device.node}/${device.index}`,
  toJson: deviceToJson,
  blank: () => create(DeviceSchema),
  columns: () => deviceColumns,
};

export const claimKind: Kind<Claim> = {
  title: "Claim",
  word: "claim",
  list: async ({ claims }, { all }) => (await claims.listClaims({ includeEnded: all })).claims,
  afterEnd: endedClaim,
  nameOf: (claim) => claim.name,
  toJson: claimToJson,
  blank: () => create(ClaimSchema),
  columns: ({ nowSeconds }) => claimColumns(nowSeconds),
};

async function endedClaim({ claims }: Connection, name: string): Promise<Claim | undefined> {
  try {
    return (await claims.getClaim({ name })).claim;
  } catch (error) {
    if (errorCodeOf(error) === "MILLPOND_E_NOT_FOUND") return undefined;
    throw error;
  }
}

export const queueKind: Kind<Queue> = {
  title: "Queue",
  word: "queue",
  list: async ({ queues }) => (await queues.listQueues({})).queues,
  nameOf: (queue) => queue.name,
  toJson: queueToJson,
  blank: () => create(QueueSchema),
  columns: () => queueColumns,
};

export const tenantKind: Kind<Tenant> = {
  title: "Tenant",
  word: "tenant",
  list: async ({ queues }) => (await queues.listTenants({})).tenants,
  nameOf: (tenant) => tenant.name,
  toJson: tenantToJson,
  blank: () => create(TenantSchema),
  columns: () => tenantColumns,
};

export const sessionKind: Kind<Session> = {
  title: "Session",
  word: "session",
  list: async ({ pool }) => (await pool.listSessions({})).sessions,
  nameOf: (session) => session.id,
  toJson: sessionToJson,
  blank: () => create(SessionSchema),
  columns: ({ nowSeconds, isWide }) => sessionColumns(nowSeconds, isWide),
};

export const eventKind: Kind<Event> = {
  title: "Event",
  word: "event",
  isLog: true,
  list: async ({ pool }, { after }) => (await pool.listEvents({ after })).events,
  nameOf: (event) => String(event.id),
  toJson: eventToJson,
  blank: () => create(EventSchema),
  columns: ({ nowSeconds }) => eventColumns(nowSeconds),
};

export const tokenKind: Kind<Token> = {
  title: "Token",
  word: "token",
  list: async ({ access }) => (await access.listTokens({})).tokens,
  nameOf: (token) => token.name,
  toJson: tokenToJson,
  blank: () => create(TokenSchema),
  columns: ({ nowSeconds }) => tokenColumns(nowSeconds),
};

export const loginKind: Kind<Login> = {
  title: "Login",
  word: "login",
  list: async ({ access }) => (await access.listLogins({})).logins,
  nameOf: (login) => login.id,
  toJson: loginToJson,
  blank: () => create(LoginSchema),
  columns: ({ nowSeconds }) => loginColumns(nowSeconds),
};

export const auditKind: Kind<AuditRecord> = {
  title: "AuditRecord",
  word: "audit",
  plural: "audit records",
  isLog: true,
  list: async ({ access }, { after }) => (await access.listAudit({ after })).records,
  nameOf: (record) => String(record.id),
  toJson: auditRecordToJson,
  blank: () => create(AuditRecordSchema),
  columns: ({ nowSeconds }) => auditColumns(nowSeconds),
};
