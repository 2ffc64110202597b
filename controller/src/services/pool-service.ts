// SPDX-License-Identifier: Apache-2.0

import { millpondError, parseName, type PoolService } from "@millpond/api";
import type { ServiceMethods } from "../handlers.ts";
import { nodeNotFound } from "../agents.ts";
import { callerOf, hideNames, seesAll, type Sight, sightOf } from "../callers.ts";
import { toDevices, toEvent, toNode, toSession } from "../convert.ts";
import { cordonNode, drainNode, labelNode, removeNode } from "../nodes.ts";
import type { Pool } from "../pool.ts";
import type { Seat } from "../seat.ts";
import type { EventQuery, EventRecord, NodeRecord, Store } from "../store/store.ts";
import { checkRange, cleanText } from "../validate.ts";

const defaultEvents = 100;
const maxEvents = 1000;

export interface ControllerFacts {
  readonly version: string;
  /** Unix seconds. */
  readonly startedAt: number;
  readonly seat: Pick<Seat, "isLeading" | "leaderUrl">;
}

export function makePoolService(
  pool: Pool,
  store: Store,
  { version, startedAt, seat }: ControllerFacts,
): ServiceMethods<typeof PoolService> {
  return {
    async listNodes() {
      return { nodes: nodesByName(pool).map((node) => toNode(pool, node)) };
    },

    async getNode({ name }) {
      return { node: toNode(pool, requireNode(pool, name)) };
    },

    async cordonNode({ name, cordoned, deviceUuid, reason }) {
      const cordon = { isCordoned: cordoned, uuid: deviceUuid, reason: cleanText(reason) };
      await cordonNode(pool, parseName(name, "node name"), cordon);
      return { node: toNode(pool, requireNode(pool, name)) };
    },

    async drainNode({ name, reason }) {
      const claims = await drainNode(pool, parseName(name, "node name"), cleanText(reason));
      return { node: toNode(pool, requireNode(pool, name)), claims };
    },

    async removeNode({ name, lost }) {
      return { claims: await removeNode(pool, parseName(name, "node name"), { isLost: lost }) };
    },

    async labelNode({ name, set, remove }) {
      await labelNode(pool, parseName(name, "node name"), { set, remove });
      return { node: toNode(pool, requireNode(pool, name)) };
    },

    async listDevices({ node }) {
      const nodes = node === "" ? nodesByName(pool) : [requireNode(pool, node)];
      return { devices: nodes.flatMap((each) => toDevices(pool, each)) };
    },

    async listSessions({ claim, node }, context) {
      const sees = sightOf(callerOf(context));
      const isSeen = (name: string) => {
        const owner = pool.ledger.claims.get(name);
        return owner === undefined ? sees === seesAll : sees(owner);
      };
      const sessions = pool.presence
        .sessions()
        .filter(
          (each) =>
            isSeen(each.session.claim) &&
            (claim === "" || each.session.claim === claim) &&
            (node === "" || each.node === node),
        )
        .sort((a, b) => a.session.startedAt - b.session.startedAt || (a.session.id < b.session.id ? -1 : 1));
      return { sessions: sessions.map((each) => toSession(pool, each.node, each.session)) };
    },

    async listEvents({ after, subject, limit }, context) {
      const sees = sightOf(callerOf(context));
      if (after > BigInt(Number.MAX_SAFE_INTEGER)) {
        throw millpondError("MILLPOND_E_INVALID", `after is ${after}, not the id of an event`);
      }
      const query: EventQuery = {
        after: Number(after),
        subject,
        limit: checkRange(limit === 0 ? defaultEvents : limit, "limit", 1, maxEvents),
        end: after === 0n ? "newest" : "oldest",
      };
      const events = await (sees === seesAll
        ? store.listEvents(query)
        : listSeenEvents(pool, store, query, sees));
      return { events: events.map(toEvent) };
    },

    async getVersion() {
      const { isLeading: leads, leaderUrl } = seat;
      const { identity } = pool.ledger;
      return { version, controller: identity, api: "v1", startedAt: BigInt(startedAt), leads, leaderUrl };
    },
  };
}

/**
 * Those of claims that are there for the caller. What events say of other claims is left out, and so are those of a claim of
 * the same name before: it may have been another tenant's.
 */
async function listSeenEvents(
  pool: Pool,
  store: Store,
  query: EventQuery,
  sees: Sight,
): Promise<EventRecord[]> {
  const isSeen = ({ subject, at }: EventRecord): boolean => {
    const claim = pool.ledger.claims.get(subject.replace(/^claim\//, ""));
    return subject.startsWith("claim/") && claim !== undefined && at >= claim.createdAt && sees(claim);
  };
  let found: EventRecord[] = [];
  for (let { after } = query; ; ) {
    const batch = await store.listEvents({ ...query, after, end: "oldest", limit: maxEvents });
    for (const event of batch.filter(isSeen)) {
      if (event.kind === "ClaimCreated") {
        // In the very second in which the one before ended.
        found = found.filter(({ subject }) => subject !== event.subject);
      }
      found.push({ ...event, message: hideNames(pool, event.message, sees) });
    }
    const last = batch.at(-1);
    if (last === undefined || batch.length < maxEvents) {
      break;
    }
    if (query.end === "oldest" && found.length >= query.limit) {
      break;
    }
    after = last.id;
  }
  return query.end === "oldest" ? found.slice(0, query.limit) : found.slice(-query.limit);
}

function nodesByName(pool: Pool): NodeRecord[] {
  return [...pool.ledger.nodes.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
}

function requireNode(pool: Pool, name: string): NodeRecord {
  const node = pool.ledger.nodes.get(parseName(name, "node name"));
  if (node === undefined) {
    throw nodeNotFound(name);
  }
  return node;
}
