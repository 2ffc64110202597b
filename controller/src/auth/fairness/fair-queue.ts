// SPDX-License-Identifier: Apache-2.0

// Decides which read runs next on the thread: start-time fair queueing (Goyal, Vin and Cheng) over measured thread
// time, among tenants, and within a tenant among its tokens. The algorithm fits because a read's cost is known only
// afterwards: the order depends on the time used so far. A tenant that was idle waits only for a little work of each
// other tenant, however many tokens that tenant has. Virtual time is the mean over the waiting flows, so that a tenant
// that keeps creating tokens does not starve its older ones.
//
// Changes, tickets and agents need the thread too, but bypass the queue. So while other tenants are served, a tenant
// that reads without pause leaves them their part: with n other tenants lately served it has one part of n + 1. Alone
// it may use everything.

/** Reads begun and not ended at a time, of a token and of a tenant: each holds its answer so far. */
const mostOfToken = 2;
const mostOfTenant = 8;

/** Thread time that a tenant may use in one burst while others are served, in milliseconds. */
const burstMs = 500;

/** How long a tenant counts as active after it was served, in milliseconds. */
const recentMs = 1_000;

/** Idle tenants, and idle tokens of a tenant, beyond this number are forgotten. */
const mostIdle = 1024;

/**
 * A flow of the queue: a tenant among tenants, or a token among those of its tenant, with the virtual time that it has
 * used.
 */
interface Flow {
  /** Virtual time up to which it has been served. */
  finish: number;
  /** Its waiting pieces of work. */
  waiting: number;
  /** One of its pieces is running and has not been charged yet. */
  isServed: boolean;
  /** Breaks ties: the lower value has waited longer. */
  order: number;
}

interface TokenLine<T> extends Flow {
  readonly name: string;
  /** Pieces of reads that have begun; they come before reads that have not. */
  readonly begun: T[];
  readonly fresh: T[];
  running: number;
}

interface TenantLine<T> extends Flow {
  readonly name: string;
  readonly tokens: Map<string, TokenLine<T>>;
  /** Virtual time among its tokens. */
  virtual: number;
  running: number;
  /** Time used beyond its part, when it was last counted. */
  usedMs: number;
  countedMs: number;
  servedMs: number;
}

/** The next piece of work to run. */
export interface Served<T> {
  readonly item: T;
  /** Whether the item begins a read. */
  readonly isFresh: boolean;
}

/** A queue of pieces of work. Each piece that it returns is charged by `charge`; a read ends with `end`. */
export class FairQueue<T> {
  readonly #tenants = new Map<string, TenantLine<T>>();
  #virtual = 0;
  #orders = 0;

  /** Reads of a token that have not begun. */
  waitingOf(tenant: string, token: string): number {
    return this.#tenants.get(tenant)?.tokens.get(token)?.fresh.length ?? 0;
  }

  /** Adds a read, or the next piece of one that has begun. */
  add(tenant: string, token: string, item: T, isFresh: boolean, nowMs: number): void {
    const line = this.#tenant(tenant, nowMs);
    const tokenLine = this.#token(line, token);
    if (line.waiting === 0 && !line.isServed) this.#wait(line, this.#virtual);
    if (tokenLine.waiting === 0 && !tokenLine.isServed) this.#wait(tokenLine, line.virtual);
    (isFresh ? tokenLine.fresh : tokenLine.begun).push(item);
    line.waiting += 1;
    tokenLine.waiting += 1;
  }

  /** Notes that a call of the tenant was served outside the queue. */
  note(tenant: string, nowMs: number): void {
    this.#tenant(tenant, nowMs).servedMs = nowMs;
  }

  /**
   * Returns the next piece of work; the milliseconds until one may run; or undefined when no waiting piece may begin.
   */
  next(nowMs: number): Served<T> | number | undefined {
    let waitMs = Infinity;
    let first: { readonly tenant: TenantLine<T>; readonly token: TokenLine<T> } | undefined;
    const recent = this.#recent(nowMs);
    for (const tenant of this.#tenants.values()) {
      const token = tenant.waiting === 0 ? undefined : firstToken(tenant);
      if (token === undefined) continue;
      const ownWaitMs = waitOf(tenant, recent, nowMs);
      if (ownWaitMs > 0) waitMs = Math.min(waitMs, ownWaitMs);
      else if (first === undefined || isBefore(tenant, first.tenant)) first = { tenant, token };
    }
    if (first === undefined) return waitMs === Infinity ? undefined : waitMs;
    const { tenant, token } = first;
    this.#virtual = Math.max(this.#virtual, tenant.finish);
    tenant.virtual = Math.max(tenant.virtual, token.finish);
    tenant.servedMs = nowMs;
    tenant.isServed = token.isServed = true;
    tenant.waiting -= 1;
    token.waiting -= 1;
    const item = token.begun.shift();
    if (item !== undefined) return { item, isFresh: false };
    tenant.running += 1;
    token.running += 1;
    return { item: token.fresh.shift() as T, isFresh: true };
  }

  /** Charges the thread time that a piece of work has used until now. */
  charge(tenant: string, token: string, ms: number, nowMs: number): void {
    const line = this.#tenant(tenant, nowMs);
    const tokenLine = this.#token(line, token);
    line.servedMs = nowMs;
    const recent = this.#recent(nowMs);
    count(line, recent, nowMs);
    // While alone, a tenant accumulates no debt, but it yields time as soon as others come.
    line.usedMs = recent === 1 ? Math.min(burstMs, line.usedMs + ms) : line.usedMs + ms;
    this.#virtual += ms / waitersOf(this.#tenants.values(), line);
    line.virtual += ms / waitersOf(line.tokens.values(), tokenLine);
    for (const flow of [line, tokenLine]) {
      flow.isServed = false;
      flow.finish += ms;
      flow.order = ++this.#orders;
    }
  }

  /** Ends a read that has begun. */
  end(tenant: string, token: string, nowMs: number): void {
    const line = this.#tenant(tenant, nowMs);
    line.running -= 1;
    this.#token(line, token).running -= 1;
    if (line.tokens.size > mostIdle) forgetIdleTokens(line);
    if (this.#tenants.size > mostIdle) this.#forgetIdle(nowMs);
  }

  #wait(flow: Flow, virtual: number): void {
    flow.finish = Math.max(flow.finish, virtual);
    flow.order = ++this.#orders;
  }

  /** How many tenants wait or were served lately. */
  #recent(nowMs: number): number {
    let recent = 0;
    for (const tenant of this.#tenants.values()) if (isRecent(tenant, nowMs)) recent += 1;
    return recent;
  }

  #tenant(name: string, nowMs: number): TenantLine<T> {
    let line = this.#tenants.get(name);
    if (line === undefined) {
      const flow = { finish: this.#virtual, order: ++this.#orders, waiting: 0, isServed: false };
      const used = { usedMs: 0, countedMs: nowMs, servedMs: Number.NEGATIVE_INFINITY };
      line = { name, tokens: new Map(), virtual: 0, running: 0, ...flow, ...used };
      this.#tenants.set(name, line);
    }
    return line;
  }

  #token(tenant: TenantLine<T>, name: string): TokenLine<T> {
    let line = tenant.tokens.get(name);
    if (line === undefined) {
      const flow = { finish: tenant.virtual, order: ++this.#orders, waiting: 0, isServed: false };
      line = { name, begun: [], fresh: [], running: 0, ...flow };
      tenant.tokens.set(name, line);
    }
    return line;
  }

  #forgetIdle(nowMs: number): void {
    for (const tenant of this.#tenants.values()) {
      const isIdle = tenant.running === 0 && tenant.finish <= this.#virtual;
      if (isIdle && !isRecent(tenant, nowMs) && tenant.usedMs === 0) this.#tenants.delete(tenant.name);
      else count(tenant, 2, nowMs);
    }
  }
}

/** The number of waiting flows, including the one that was just served. */
function waitersOf(flows: Iterable<Flow>, served: Flow): number {
  let waiters = 0;
  for (const flow of flows) if (flow.waiting > 0 || flow === served) waiters += 1;
  return waiters;
}

function isBefore(one: Flow, other: Flow): boolean {
  return one.finish < other.finish || (one.finish === other.finish && one.order < other.order);
}

function isRecent({ waiting, servedMs }: TenantLine<unknown>, nowMs: number): boolean {
  return waiting > 0 || nowMs - servedMs < recentMs;
}

/** The token of a tenant that is next, among those that may continue or begin. */
function firstToken<T>(tenant: TenantLine<T>): TokenLine<T> | undefined {
  let first: TokenLine<T> | undefined;
  for (const token of tenant.tokens.values()) {
    const mayBegin = token.fresh.length > 0 && token.running < mostOfToken && tenant.running < mostOfTenant;
    if (token.begun.length === 0 && !mayBegin) continue;
    if (first === undefined || isBefore(token, first)) first = token;
  }
  return first;
}

/** Milliseconds until a tenant may use the thread again, when this many tenants were served lately. */
function waitOf(tenant: TenantLine<unknown>, recent: number, nowMs: number): number {
  count(tenant, recent, nowMs);
  return recent === 1 ? 0 : Math.max(0, tenant.usedMs - burstMs) * recent;
}

function count(tenant: TenantLine<unknown>, recent: number, nowMs: number): void {
  tenant.usedMs = Math.max(0, tenant.usedMs - (nowMs - tenant.countedMs) / Math.max(2, recent));
  tenant.countedMs = nowMs;
}

function forgetIdleTokens(tenant: TenantLine<unknown>): void {
  for (const token of tenant.tokens.values()) {
    const isIdle = token.running === 0 && token.waiting === 0;
    if (isIdle && token.finish <= tenant.virtual) tenant.tokens.delete(token.name);
  }
}
