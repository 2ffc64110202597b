// SPDX-License-Identifier: Apache-2.0

import { type CardFigures, millpondError, ticketLifetimeSeconds } from "@millpond/api";
import type { Clock } from "../timers/clock.ts";
import { unixSeconds } from "../timers/clock.ts";
import { Deadlines } from "../timers/deadlines.ts";
import type { AgentReport, NodeDescription, SessionFacts } from "../domain/agent-report.ts";

/** A node is not ready once its agent has been silent this long. */
export const nodeLostAfterMs = 10_000;

/** An agent calls again within 2 s of each answer. Without a call for this long, it is considered gone. */
const agentGoneAfterMs = 3_000;

/**
 * After this long a ticket that has opened no session has expired; if it had opened one, the session would have been
 * reported.
 */
export const ticketMemoryMs = ticketLifetimeSeconds * 1000 + nodeLostAfterMs;

/**
 * A client presents its ticket immediately, and requests another if the agent does not respond. A ticket from before
 * the agent's start is therefore rarely presented to it; until this time has passed, such a ticket counts as
 * outstanding.
 */
const ticketOfEarlierRunMs = 15_000;

/** A client's description of itself when it got its ticket. */
export interface ClientFacts {
  readonly host: string;
  readonly pid: number;
  readonly program: string;
}

interface UnusedTicket {
  readonly epoch: number;
  readonly node: string;
  readonly client: ClientFacts;
  /** On the monotonic clock. */
  readonly expiresMs: number;
}

export interface PresentSession extends SessionFacts {
  /** Undefined when the ticket was issued before the controller started. */
  readonly client: ClientFacts | undefined;
}

interface NodePresence {
  run: string;
  description: NodeDescription;
  /** When each of its devices became unhealthy, by UUID, on the monotonic clock. */
  illSinceMs: ReadonlyMap<string, number>;
  /** Faults of devices that an operator has cleared and the agent still reports, by UUID. */
  clearedFaults: ReadonlyMap<string, number>;
  /** Sequence number of the call that brought the report. */
  describedBy: number;
  sequence: number;
  /** The revision that the agent enforces; 0 until it has had an answer from this process. */
  knownRevision: number;
  hasBeenAnswered: boolean;
  lastContactMs: number;
  lastContactAt: number;
  isReady: boolean;
  warmWorkers: number;
  /** Ids of the ticket keys that its agent has. */
  ticketKeys: ReadonlySet<string>;
  sessions: ReadonlyMap<string, PresentSession>;
  /** What drivers measure of its devices, by UUID. */
  figures: ReadonlyMap<string, CardFigures>;
  /** The pending call; aborted when a newer one takes its place. */
  poll: AbortController | undefined;
  /** The agent hung up while the call was pending. */
  hasHungUp: boolean;
}

/** The controller's result for a report. */
export interface Admission {
  /** A newer report has overtaken this one, which was not applied. */
  readonly isStale: boolean;
  /** Description of the node; undefined: none has been received yet, and the report was not applied. */
  readonly description: NodeDescription | undefined;
  /** First contact since the controller started, or since the node was lost. */
  readonly hasComeBack: boolean;
  /** Sessions have ended, or a claim has gained its first or lost its last session or client. */
  readonly hasNews: boolean;
  /** The agent has had no answer from this controller process yet. */
  readonly isFirst: boolean;
  /** The agent reports ticket keys that it did not have before. */
  readonly hasNewKeys: boolean;
  /** Aborted when a newer call of the same agent waits instead. */
  readonly superseded: AbortSignal;
}

/**
 * Reports of agents about their nodes and running sessions. In memory only: agents are the source of truth
 * and repeat them.
 */
export class NodeLiveness {
  readonly #clock: Clock;
  readonly #nodes = new Map<string, NodePresence>();
  /** When each ready node becomes lost unless its agent calls. */
  readonly #deadlines = new Deadlines();
  /** Epochs of the allocations of which a client has been connected. */
  readonly #served = new Set<number>();
  /** Tickets that have opened no session yet, by session, in order of issue. */
  readonly #unused = new Map<string, UnusedTicket>();
  #startedMs = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.restart();
  }

  /** Starts to accept reports of agents. */
  restart(): void {
    this.#startedMs = this.#clock.monotonicMs();
  }

  /**
   * Applies a report.
   *
   * @param isHeld Whether there is an allocation of the epoch.
   * @throws MILLPOND_E_NODE_NAME_TAKEN
   */
  admit(report: AgentReport, isHeld: (epoch: number) => boolean): Admission {
    const now = this.#clock.monotonicMs();
    const before = this.#nodes.get(report.node);
    this.#refuseDouble(report, before);
    const isSameRun = before?.run === report.run;
    const poll = new AbortController();
    const isStale = isSameRun && report.sequence > 0 && report.sequence <= before.sequence;
    const remembered =
      isSameRun && before.describedBy === report.describedBy ? before.description : undefined;
    const description = report.description ?? remembered;
    if (isStale || description === undefined) {
      const nothing = {
        hasComeBack: false,
        hasNews: false,
        isFirst: false,
        hasNewKeys: false,
        superseded: poll.signal,
      };
      return { isStale, description, ...nothing };
    }
    before?.poll?.abort();
    const isFirst = !isSameRun || !before.hasBeenAnswered;
    const node: NodePresence = {
      run: report.run,
      description,
      illSinceMs: illSince(description, before, now),
      clearedFaults: isSameRun ? stillReported(before.clearedFaults, description) : new Map(),
      describedBy: report.describedBy,
      sequence: report.sequence,
      // A revision is accepted only after this process has sent it to that agent: it might be another
      // controller's.
      knownRevision: isFirst ? 0 : report.knownRevision,
      hasBeenAnswered: !isFirst,
      lastContactMs: now,
      lastContactAt: unixSeconds(this.#clock),
      isReady: true,
      warmWorkers: report.warmWorkers,
      ticketKeys: report.ticketKeys,
      sessions: this.#presentSessions(report, before),
      figures: report.figures,
      poll,
      hasHungUp: false,
    };
    this.#nodes.set(report.node, node);
    if (before !== undefined && !isSameRun) {
      this.#shortenTickets(report.node, now + ticketOfEarlierRunMs);
    }
    this.#deadlines.set(report.node, now + nodeLostAfterMs);
    for (const { id } of report.endedSessions) {
      this.#unused.delete(id);
    }
    for (const { epoch } of [
      ...report.sessions.filter(({ hasClient }) => hasClient),
      ...report.endedSessions.filter(({ hadClient }) => hadClient),
    ]) {
      if (isHeld(epoch)) {
        this.#served.add(epoch);
      }
    }
    return {
      isStale: false,
      description,
      hasComeBack: before === undefined || !before.isReady,
      hasNews: report.endedSessions.length > 0 || !hasSameAllocations(node, before),
      isFirst,
      hasNewKeys: before !== undefined && [...report.ticketKeys].some((id) => !before.ticketKeys.has(id)),
      superseded: poll.signal,
    };
  }

  /** The call of this agent run is over: answered, or the agent hung up. */
  endPoll(name: string, superseded: AbortSignal, how: "answered" | "hung up"): void {
    const node = this.#nodes.get(name);
    if (node === undefined || node.poll?.signal !== superseded) {
      return;
    }
    node.poll = undefined;
    // An agent that has announced its exit does not wait for its answer.
    node.hasHungUp = how === "hung up" || !node.isReady;
    if (how === "answered") {
      node.hasBeenAnswered = true;
    }
  }

  /** The agent of a node is stopping: its silence is not timed, and another agent may join immediately. */
  leave(name: string): void {
    const node = this.#nodes.get(name);
    if (node !== undefined) {
      node.isReady = false;
      node.hasHungUp = true;
      this.#deadlines.delete(name);
    }
  }

  /** Marks nodes that have been silent for too long as not ready, and returns their names. */
  loseSilentNodes(): string[] {
    const lost = this.#deadlines.takeDue(this.#clock.monotonicMs());
    for (const name of lost) {
      const node = this.#nodes.get(name);
      if (node !== undefined) {
        node.isReady = false;
      }
    }
    return lost;
  }

  /** When the next node is lost unless its agent calls, on the monotonic clock. */
  nextDeadlineMs(): number | undefined {
    return this.#deadlines.next();
  }

  get nodes(): ReadonlyMap<string, Readonly<NodePresence>> {
    return this.#nodes;
  }

  /** Epochs of the allocations of which an agent has reported a connected client since the controller started. */
  get served(): ReadonlySet<number> {
    return this.#served;
  }

  get unusedTickets(): ReadonlyMap<string, UnusedTicket> {
    return this.#unused;
  }

  /** When this process began to accept reports, on the monotonic clock. */
  get listeningSinceMs(): number {
    return this.#startedMs;
  }

  isReady(node: string): boolean {
    return this.#nodes.get(node)?.isReady ?? false;
  }

  get readyNodes(): number {
    return [...this.#nodes.values()].filter(({ isReady }) => isReady).length;
  }

  /** Undefined when the node's agent has not called since the controller started. */
  of(node: string): Readonly<NodePresence> | undefined {
    return this.#nodes.get(node);
  }

  /** The sessions that were last reported, also of lost nodes. */
  sessions(): { readonly node: string; readonly session: PresentSession }[] {
    return [...this.#nodes].flatMap(([node, { sessions }]) =>
      [...sessions.values()].map((session) => ({ node, session })),
    );
  }

  forgetAllocation(epoch: number): void {
    this.#served.delete(epoch);
  }

  /** Remembers a ticket until its session is reported or the ticket has expired. */
  expectSession(session: string, ticket: Omit<UnusedTicket, "expiresMs">): void {
    const now = this.#clock.monotonicMs();
    for (const [id, { expiresMs }] of this.#unused) {
      if (expiresMs > now) {
        break;
      }
      this.#unused.delete(id);
    }
    // A later ticket of a session takes its place in the order.
    this.#unused.delete(session);
    this.#unused.set(session, { ...ticket, expiresMs: now + ticketMemoryMs });
  }

  /** Number of the fault that the driver of a device has reported; 0: none, or its node is not in contact. */
  faultOf(name: string, uuid: string): number {
    const node = this.#nodes.get(name);
    return node?.isReady === true ? (node.description.faults.get(uuid) ?? 0) : 0;
  }

  /** Has the agent clear the fault that it reports for a device: the device is healthy again. */
  clearFault(name: string, uuid: string): void {
    const node = this.#nodes.get(name);
    const fault = this.faultOf(name, uuid);
    if (node !== undefined && fault > 0) {
      node.clearedFaults = new Map([...node.clearedFaults, [uuid, fault]]);
    }
  }

  /** Faults that were cleared and that the agent of a node still reports, by UUID. */
  clearedFaults(name: string): ReadonlyMap<string, number> {
    return this.#nodes.get(name)?.clearedFaults ?? new Map();
  }

  /** Whether an agent of the node is in contact, or may still be: its call is pending, or it has had little time to call. */
  mayBeThere(name: string): boolean {
    const node = this.#nodes.get(name);
    return node === undefined
      ? this.#clock.monotonicMs() - this.#startedMs < nodeLostAfterMs
      : this.#isInContact(node);
  }

  #isInContact({ poll, hasHungUp, lastContactMs }: NodePresence): boolean {
    const silentMs = this.#clock.monotonicMs() - lastContactMs;
    return poll !== undefined || (!hasHungUp && silentMs < agentGoneAfterMs);
  }

  /** Forgets a node that is no longer in the pool. */
  forgetNode(name: string): void {
    this.#nodes.get(name)?.poll?.abort();
    this.#nodes.delete(name);
    this.#deadlines.delete(name);
  }

  #shortenTickets(name: string, untilMs: number): void {
    for (const [session, ticket] of this.#unused) {
      if (ticket.node === name) {
        this.#unused.set(session, { ...ticket, expiresMs: Math.min(ticket.expiresMs, untilMs) });
      }
    }
  }

  #refuseDouble(report: AgentReport, before: NodePresence | undefined): void {
    if (before === undefined || before.run === report.run) {
      return;
    }
    if (this.#isInContact(before)) {
      const silentMs = this.#clock.monotonicMs() - before.lastContactMs;
      throw millpondError(
        "MILLPOND_E_NODE_NAME_TAKEN",
        `the node name ${report.node} is in use by the agent at ${before.description.agentUrl}, which called ${(silentMs / 1000).toFixed(1)} s ago`,
      );
    }
  }

  #presentSessions(
    report: AgentReport,
    before: NodePresence | undefined,
  ): ReadonlyMap<string, PresentSession> {
    return new Map(
      report.sessions.map((session) => {
        const client = before?.sessions.get(session.id)?.client ?? this.#unused.get(session.id)?.client;
        this.#unused.delete(session.id);
        return [session.id, { ...session, client }];
      }),
    );
  }
}

/** A device that an earlier report listed and this one does not counts as unhealthy. */
function illSince(
  { devices }: NodeDescription,
  before: Pick<NodePresence, "description" | "illSinceMs"> | undefined,
  nowMs: number,
): ReadonlyMap<string, number> {
  if (before?.description.devices === devices) {
    return before.illSinceMs;
  }
  const well = new Set(devices.filter(({ isHealthy }) => isHealthy).map(({ uuid }) => uuid));
  const known = [...(before?.description.devices ?? []), ...devices].map(({ uuid }) => uuid);
  const ill = [...known, ...(before?.illSinceMs.keys() ?? [])].filter((uuid) => !well.has(uuid));
  return new Map(ill.map((uuid) => [uuid, before?.illSinceMs.get(uuid) ?? nowMs]));
}

function stillReported(
  cleared: ReadonlyMap<string, number>,
  { faults }: NodeDescription,
): ReadonlyMap<string, number> {
  return cleared.size === 0
    ? cleared
    : new Map([...cleared].filter(([uuid, fault]) => faults.get(uuid) === fault));
}

function hasSameAllocations(node: NodePresence, before: NodePresence | undefined): boolean {
  const now = allocationsOf(node);
  const known = allocationsOf(before);
  return now.size === known.size && [...now].every(([epoch, hasClient]) => known.get(epoch) === hasClient);
}

/** The allocations with sessions on a node, and whether one of these has a client. */
function allocationsOf(node: NodePresence | undefined): ReadonlyMap<number, boolean> {
  const allocations = new Map<number, boolean>();
  for (const { epoch, hasClient } of node?.sessions.values() ?? []) {
    allocations.set(epoch, hasClient || (allocations.get(epoch) ?? false));
  }
  return allocations;
}
