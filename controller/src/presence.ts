// SPDX-License-Identifier: Apache-2.0

import { millpondError, ticketLifetimeSeconds } from "@millpond/api";
import type { Clock } from "./clock.ts";
import { unixSeconds } from "./clock.ts";
import { Deadlines } from "./deadlines.ts";
import type { AgentReport, NodeDescription, SessionFacts } from "./report.ts";

/** A node whose agent has been silent for so long is not ready. */
export const nodeLostAfterMs = 10_000;

/** An agent calls again when it is answered, after 2 s at most; one whose last call is so long ago is gone. */
const agentGoneAfterMs = 3_000;

/** A ticket that has opened no session for so long will open none: it has expired, and its session would be known. */
export const ticketMemoryMs = ticketLifetimeSeconds * 1000 + nodeLostAfterMs;

/**
 * Whoever has a ticket presents it at once, and gets another where the agent does not answer. So one from before the agent
 * was started is hardly presented to it; until then, where it is, it is not missed.
 */
const ticketOfEarlierRunMs = 15_000;

/** What a client said of itself when it got its ticket. */
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
  /** Since when its devices are ill, by UUID, on the monotonic clock. */
  illSinceMs: ReadonlyMap<string, number>;
  /** Faults of devices that somebody has cleared and the agent still reports, by UUID. */
  clearedFaults: ReadonlyMap<string, number>;
  /** Sequence of the call that brought it. */
  describedBy: number;
  sequence: number;
  /** The revision that the agent enforces; 0 until it has had an answer from this process. */
  knownRevision: number;
  hasBeenAnswered: boolean;
  lastContactMs: number;
  lastContactAt: number;
  isReady: boolean;
  warmWorkers: number;
  sessions: ReadonlyMap<string, PresentSession>;
  /** The call that waits; aborted when a newer one takes its place. */
  poll: AbortController | undefined;
  /** Its agent hung up while it waited. */
  hasHungUp: boolean;
}

/** What the controller made of a report. */
export interface Admission {
  /** The report has been overtaken by a newer one and was not taken over. */
  readonly isStale: boolean;
  /** Of the node; undefined: nobody has described it, and the report was not taken over. */
  readonly description: NodeDescription | undefined;
  /** First contact since the controller started, or since the node was lost. */
  readonly hasComeBack: boolean;
  /** Sessions have ended, or a claim has sessions or clients now and had none, or the other way round. */
  readonly hasNews: boolean;
  /** The agent has had no answer from this controller process yet. */
  readonly isFirst: boolean;
  /** Aborted when a newer call of the same agent waits instead. */
  readonly superseded: AbortSignal;
}

/** What agents say about their nodes and what runs there. In memory only: agents are the truth and say it again. */
export class Presence {
  readonly #clock: Clock;
  readonly #nodes = new Map<string, NodePresence>();
  /** When nodes that are ready are lost unless their agents call. */
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

  /** From now on agents are listened to. */
  restart(): void {
    this.#startedMs = this.#clock.monotonicMs();
  }

  /**
   * Takes a report over.
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
      const nothing = { hasComeBack: false, hasNews: false, isFirst: false, superseded: poll.signal };
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
      // A revision is believed only after this process has told it to that agent: it might be another controller's.
      knownRevision: isFirst ? 0 : report.knownRevision,
      hasBeenAnswered: !isFirst,
      lastContactMs: now,
      lastContactAt: unixSeconds(this.#clock),
      isReady: true,
      warmWorkers: report.warmWorkers,
      sessions: this.#presentSessions(report, before),
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
      superseded: poll.signal,
    };
  }

  /** The call of the run is over: answered, or the agent hung up. */
  endPoll(name: string, superseded: AbortSignal, how: "answered" | "hung up"): void {
    const node = this.#nodes.get(name);
    if (node === undefined || node.poll?.signal !== superseded) {
      return;
    }
    node.poll = undefined;
    node.hasHungUp = how === "hung up";
    if (how === "answered") {
      node.hasBeenAnswered = true;
    }
  }

  /** Marks nodes that have been silent for too long as not ready, and names them. */
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

  /** Number of sessions of an allocation that were last reported from a node. */
  openSessions(node: string, allocation: number): number {
    let count = 0;
    for (const { epoch } of this.#nodes.get(node)?.sessions.values() ?? []) {
      count += epoch === allocation ? 1 : 0;
    }
    return count;
  }

  /** Number of those that have a client. */
  servedSessions(node: string, allocation: number): number {
    let count = 0;
    for (const { epoch, hasClient } of this.#nodes.get(node)?.sessions.values() ?? []) {
      count += epoch === allocation && hasClient ? 1 : 0;
    }
    return count;
  }

  /** Whether the agent has said since the controller started that the allocation has or had a client. */
  hasBeenServed(epoch: number): boolean {
    return this.#served.has(epoch);
  }

  /** Seconds since a node was last heard of, or since the controller started. */
  silentSeconds(node: string): number {
    const since = this.#nodes.get(node)?.lastContactMs ?? this.#startedMs;
    return (this.#clock.monotonicMs() - since) / 1000;
  }

  /** Seconds since one of these devices of a node fell ill or went missing; 0: none has, or its node says nothing. */
  illSeconds(node: string, uuids: readonly string[]): number {
    const presence = this.#nodes.get(node);
    const since = uuids.map((uuid) => presence?.illSinceMs.get(uuid)).filter((ms) => ms !== undefined);
    return since.length === 0 ? 0 : (this.#clock.monotonicMs() - Math.min(...since)) / 1000;
  }

  /**
   * Whether the agent opens no session any more for what was taken back at this revision: it obeys an answer of that one
   * or a later one, and such an answer was made after the last ticket for it.
   */
  enforces(node: string, revision: number): boolean {
    const presence = this.#nodes.get(node);
    return presence !== undefined && presence.isReady && presence.knownRevision >= revision;
  }

  forgetAllocation(epoch: number): void {
    this.#served.delete(epoch);
  }

  /** The sessions of an allocation that were last reported from a node. */
  sessionsOf(node: string, allocation: number): readonly PresentSession[] {
    return [...(this.#nodes.get(node)?.sessions.values() ?? [])].filter(({ epoch }) => epoch === allocation);
  }

  /** Until when a ticket that this process issued for an allocation may still open a session, on the monotonic clock. */
  unusedUntilMs(allocation: number): number {
    const tickets = [...this.#unused.values()].filter(({ epoch }) => epoch === allocation);
    return Math.max(0, ...tickets.map(({ expiresMs }) => expiresMs));
  }

  /** Remembers a ticket until its session is reported or it can open none any more. */
  expectSession(session: string, ticket: Omit<UnusedTicket, "expiresMs">): void {
    const now = this.#clock.monotonicMs();
    for (const [id, { expiresMs }] of this.#unused) {
      if (expiresMs > now) {
        break;
      }
      this.#unused.delete(id);
    }
    this.#unused.set(session, { ...ticket, expiresMs: now + ticketMemoryMs });
  }

  /** Number of the fault that the driver of a device has reported; 0: none, or its node is not in contact. */
  faultOf(name: string, uuid: string): number {
    const node = this.#nodes.get(name);
    return node?.isReady === true ? (node.description.faults.get(uuid) ?? 0) : 0;
  }

  /** Has the agent told that a device is well again, in view of the fault that it reports. */
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

  /** Whether an agent of the node is there, or may be: it waits for an answer, or has had little time to call. */
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

  /** To be told of nodes that are not in the pool any more. */
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

/** One that was there before and is not told of any more is ill, too. */
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
