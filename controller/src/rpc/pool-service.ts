// SPDX-License-Identifier: Apache-2.0

import { millpondError, parseNodeName, type PoolService } from "@millpond/api";
import type { ServiceMethods } from "./service-methods.ts";
import type { EventRecord, NodeRecord } from "../domain/records.ts";
import { nodeNotFound } from "../operations/agent-sync.ts";
import { mapInTurns, nextTurnOf } from "../auth/fairness/fair-turns.ts";
import { callerOf, seesAll, type Visibility, visibilityOf, mayKnowOf } from "../auth/visibility.ts";
import { toDevices, toEvent, toNode, toSession } from "./to-proto.ts";
import { cordonNode, drainNode, labelNode, removeNode } from "../operations/nodes.ts";
import type { Pool } from "../pool/pool.ts";
import type { LeaderElector } from "../ha/leader-election.ts";
import type { EventQuery, Store } from "../state/store.ts";
import { checkRange, cleanText } from "../domain/validate-claim.ts";

const defaultEvents = 100;
const maxEvents = 1000;

export interface ControllerFacts {
  readonly version: string;
  /** Unix seconds. */
  readonly startedAt: number;
  /** Where the next backup is written. */
  readonly nextBackupPath: () => string;
  readonly elector: Pick<LeaderElector, "isLeading" | "leaderUrl">;
}

export function makePoolService(
  pool: Pool,
  store: Store,
  { version, startedAt, elector, nextBackupPath }: ControllerFacts,
): ServiceMethods<typeof PoolService> {
  return {
    async listNodes(_request, context) {
      const viewer = callerOf(context);
      const nodes = await mapInTurns(nodesByName(pool), context, ({ name }) => {
        const node = pool.ledger.nodes.get(name);
        return node === undefined ? undefined : toNode(pool, node, viewer);
      });
      return { nodes: nodes.filter((node) => node !== undefined) };
    },

    async getNode({ name }, context) {
      return { node: toNode(pool, requireNode(pool, name), callerOf(context)) };
    },

    async cordonNode({ name, cordoned, deviceUuid, reason }, context) {
      const cordon = { isCordoned: cordoned, uuid: deviceUuid, reason: cleanText(reason) };
      await cordonNode(pool, parseNodeName(name), cordon);
      return { node: toNode(pool, requireNode(pool, name), callerOf(context)) };
    },

    async drainNode({ name, reason }, context) {
      const claims = await drainNode(pool, parseNodeName(name), cleanText(reason));
      return { node: toNode(pool, requireNode(pool, name), callerOf(context)), claims };
    },

    async removeNode({ name, lost }) {
      return { claims: await removeNode(pool, parseNodeName(name), { isLost: lost }) };
    },

    async labelNode({ name, set, remove }, context) {
      await labelNode(pool, parseNodeName(name), { set, remove });
      return { node: toNode(pool, requireNode(pool, name), callerOf(context)) };
    },

    async listDevices({ node }, context) {
      const viewer = callerOf(context);
      const nodes = node === "" ? nodesByName(pool) : [requireNode(pool, node)];
      const devices = await mapInTurns(nodes, context, ({ name }) => {
        const each = pool.ledger.nodes.get(name);
        return each === undefined ? [] : toDevices(pool, each, viewer);
      });
      return { devices: devices.flat() };
    },

    async listSessions({ claim, node }, context) {
      const sees = visibilityOf(callerOf(context));
      const isSeen = (name: string) => {
        const owner = pool.ledger.claims.get(name);
        return owner === undefined ? sees === seesAll : sees(owner);
      };
      const sessions = pool.liveness
        .sessions()
        .filter(
          (each) =>
            isSeen(each.session.claim) &&
            (claim === "" || each.session.claim === claim) &&
            (node === "" || each.node === node),
        )
        .sort((a, b) => a.session.startedAt - b.session.startedAt || (a.session.id < b.session.id ? -1 : 1));
      const shown = await mapInTurns(sessions, context, (each) =>
        // Its claim may have ended meanwhile, and its name may belong to another tenant's claim.
        isSeen(each.session.claim) ? toSession(pool, each.node, each.session) : undefined,
      );
      return { sessions: shown.filter((session) => session !== undefined) };
    },

    async listEvents({ after, subject, limit }, context) {
      const caller = callerOf(context);
      const sees = visibilityOf(caller);
      if (after > BigInt(Number.MAX_SAFE_INTEGER)) {
        throw millpondError("MILLPOND_E_INVALID", `after is ${after}, not the id of an event`);
      }
      const query: EventQuery = {
        after: Number(after),
        // A token of a claim sees events of that claim only, so that the store need not read any others.
        subject: caller.claim !== undefined && subject === "" ? `claim/${caller.claim.name}` : subject,
        limit: checkRange(limit === 0 ? defaultEvents : limit, "limit", 1, maxEvents),
        end: after === 0n ? "newest" : "oldest",
      };
      const events = await (sees === seesAll
        ? store.listEvents(query)
        : listSeenEvents(pool, store, query, { sees, nextTurn: nextTurnOf(context) }));
      const mayKnow = mayKnowOf(caller);
      return { events: await mapInTurns(events, context, (event) => toEvent(event, mayKnow)) };
    },

    async backUp() {
      if (store.backUp === undefined) {
        throw millpondError("MILLPOND_E_INVALID", "the state is in a database, whose own tools back it up", {
          remedy:
            "Use pg_dump, or your usual backup of PostgreSQL; `millpond backup --state DIR` saves the tokens.",
        });
      }
      const { path, bytes, revision } = await store.backUp(nextBackupPath());
      return { path, bytes: BigInt(bytes), revision: BigInt(revision) };
    },

    async getVersion() {
      const { isLeading: leads, leaderUrl } = elector;
      const { identity } = pool.ledger;
      return { version, controller: identity, api: "v1", startedAt: BigInt(startedAt), leads, leaderUrl };
    },
  };
}

/**
 * The events of claims that the caller may see. Mentions of other claims are removed, and so are events of an earlier
 * claim of the same name, which may have been another tenant's.
 */
async function listSeenEvents(
  pool: Pool,
  store: Store,
  query: EventQuery,
  { sees, nextTurn }: { readonly sees: Visibility; readonly nextTurn: () => Promise<void> },
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
        // In the same second in which the previous one ended.
        found = found.filter(({ subject }) => subject !== event.subject);
      }
      found.push(event);
    }
    const last = batch.at(-1);
    if (last === undefined || batch.length < maxEvents) {
      break;
    }
    if (query.end === "oldest" && found.length >= query.limit) {
      break;
    }
    after = last.id;
    // Yields to other calls between two events of a long list.
    await nextTurn();
  }
  return query.end === "oldest" ? found.slice(0, query.limit) : found.slice(-query.limit);
}

function nodesByName(pool: Pool): NodeRecord[] {
  return [...pool.ledger.nodes.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
}

function requireNode(pool: Pool, name: string): NodeRecord {
  const node = pool.ledger.nodes.get(parseNodeName(name));
  if (node === undefined) {
    throw nodeNotFound(name);
  }
  return node;
}
