// SPDX-License-Identifier: Apache-2.0

import { createPrivateKey, createPublicKey } from "node:crypto";
import { mkdirSync, readFileSync } from "node:fs";
import {
  authorityPath,
  AccessService,
  AgentService,
  ClaimService,
  errorCodeOf,
  formatTicketPublicKey,
  millpondError,
  PoolService,
  QueueService,
} from "@millpond/api";
import packageJson from "../package.json" with { type: "json" };
import type { AuditedCall } from "./audit.ts";
import { CallGuard } from "./call-guard.ts";
import type { Role } from "./callers.ts";
import { unixSeconds } from "./clock.ts";
import { Leader } from "./leader.ts";
import { type Handlers, makeHandlers } from "./handlers.ts";
import { makeLog } from "./log.ts";
import { readMetrics } from "./metrics.ts";
import { type ControllerOptions, type ResolvedOptions, resolveOptions } from "./options.ts";
import type { Pool } from "./pool.ts";
import { Seat } from "./seat.ts";
import { type HttpServer, makeServer } from "./server.ts";
import { makeAccessService } from "./services/access-service.ts";
import { makeAgentService } from "./services/agent-service.ts";
import { makeClaimService } from "./services/claim-service.ts";
import { makePoolService } from "./services/pool-service.ts";
import { makeQueueService } from "./services/queue-service.ts";
import { SqliteStore } from "./store/sqlite-store.ts";
import type { Store } from "./store/store.ts";
import { certificateSource } from "./tls.ts";
import { type FixedToken, readOrMakeToken, TokenVerifier } from "./tokens.ts";

/** A running controller. Disposing of it ends it: calls under way are answered, what was acknowledged is durable. */
export interface Controller extends AsyncDisposable {
  /** Base URL, with the port that was taken. */
  readonly url: string;
  /** UUID of the state. */
  readonly identity: string;
  /** The administrator's token in the state directory. */
  readonly userToken: string;
  /** The token in the state directory for agents. */
  readonly agentToken: string;
}

/**
 * Starts a controller.
 *
 * @throws MILLPOND_E_INVALID, MILLPOND_E_TLS, MILLPOND_E_ADDRESS_IN_USE, MILLPOND_E_STATE_LOCKED,
 *   MILLPOND_E_STATE_NEWER, MILLPOND_E_STATE_BROKEN
 */
export async function startController(options: ControllerOptions): Promise<Controller> {
  const resolved = resolveOptions(options);
  const log = options.log ?? makeLog("info");
  const { stateDirectory, clock } = resolved;
  makeStateDirectory(stateDirectory);
  await using cleanup = new AsyncDisposableStack();
  const store = cleanup.adopt(await openStore(resolved), (each) => each.close());
  const userToken = readOrMakeToken(stateDirectory, "user");
  const agentToken = readOrMakeToken(stateDirectory, "agent");
  const { seat, state } = await Seat.open({ store, clock, log, onPool: (pool) => begin(pool) });
  cleanup.use(seat);

  const ticketKey = createPrivateKey({ key: Buffer.from(state.ticketKey), format: "der", type: "pkcs8" });
  const ticketPublicKey = formatTicketPublicKey(createPublicKey(ticketKey));
  const { version } = packageJson;
  const startedAt = unixSeconds(clock);
  const shutdown = new AbortController();
  const tokens = new TokenVerifier(
    fixedTokens({ userToken, agentToken }, resolved),
    (hash) => seat.pool.ledger.tokenByHash(hash),
    () => unixSeconds(clock),
  );
  const leader = new Leader({ seat, readCa: () => readCa(resolved) });
  const handlersOf = (pool: Pool): Handlers => {
    const guard = new CallGuard({
      tokens,
      log,
      requireLead: (what) => seat.requireLead(what),
      writeAudit: (call, result) => writeAudit(pool, call, result),
    });
    return makeHandlers({ guard, leader }, (registry) => {
      registry.service(ClaimService, makeClaimService(pool, ticketKey));
      registry.service(PoolService, makePoolService(pool, store, { version, startedAt, seat }));
      registry.service(QueueService, makeQueueService(pool, store));
      registry.service(AccessService, makeAccessService(pool, store));
      registry.service(AgentService, makeAgentService(pool, { version, ticketPublicKey }));
    });
  };
  let handlers = handlersOf(seat.pool);
  const { tls } = resolved;
  const server = makeServer({
    certificates: tls === undefined ? undefined : certificateSource(tls, stateDirectory),
    tokens,
    log,
    shutdown: shutdown.signal,
    handlers: () => handlers,
    readMetrics: () => readMetrics(seat, version),
    checkHealth: async () => {
      await store.listEvents({ after: 0, subject: "", limit: 1, end: "newest" });
    },
  });
  cleanup.defer(async () => {
    shutdown.abort(millpondError("MILLPOND_E_SHUTTING_DOWN", "the controller is being stopped"));
    await server.close();
  });
  // Whoever waits for an answer about the pool that was led before gets none.
  const begin = (pool: Pool): void => {
    handlers = handlersOf(pool);
    server.endCalls(millpondError("MILLPOND_E_NOT_LEADER", "this controller leads no longer"));
  };
  const url = await listen(server, resolved);
  await seat.start(resolved.advertise ?? url);
  log.info({ url, stateDirectory, version, controller: state.identity }, `the controller listens at ${url}`);
  const running = cleanup.move();
  return {
    url,
    identity: state.identity,
    userToken,
    agentToken,
    [Symbol.asyncDispose]: async () => {
      await running.disposeAsync();
      log.info("the controller has stopped");
    },
  };
}

async function openStore({ storeUrl, stateDirectory }: ResolvedOptions): Promise<Store> {
  if (storeUrl === undefined) {
    return SqliteStore.open({ directory: stateDirectory });
  }
  // Loaded where it is used: most controllers have their state in a file.
  const { PostgresStore } = await import("./store/postgres-store.ts");
  return await PostgresStore.open({ url: storeUrl });
}

/** The authorities to trust of other controllers; undefined: those of the machine. */
function readCa({ ca, tls, stateDirectory }: ResolvedOptions): string | undefined {
  return ca ?? (tls?.kind === "own" ? readFileSync(authorityPath(stateDirectory), "utf8") : undefined);
}

/** Those of the state directory and of the environment; their names cannot be those of tokens that are made. */
function fixedTokens(
  { userToken, agentToken }: Pick<Controller, "userToken" | "agentToken">,
  { userTokens, agentTokens }: ResolvedOptions,
): FixedToken[] {
  const fixed = (secret: string, name: string, role: Role): FixedToken => ({
    secret,
    caller: { name, role, tenant: "", madeAt: 0 },
  });
  return [
    fixed(userToken, "file:user", "admin"),
    fixed(agentToken, "file:agent", "agent"),
    ...userTokens.map((secret, index) => fixed(secret, `environment:user-${index + 1}`, "admin")),
    ...agentTokens.map((secret, index) => fixed(secret, `environment:agent-${index + 1}`, "agent")),
  ];
}

async function writeAudit(pool: Pool, call: AuditedCall, result: string): Promise<void> {
  await pool.ledger.change({
    make: (transaction) => transaction.audit.push(call.toEntry(transaction.now, result)),
  });
}

function makeStateDirectory(path: string): void {
  try {
    mkdirSync(path, { recursive: true, mode: 0o700 });
  } catch (cause) {
    const message = cause instanceof Error ? cause.message : String(cause);
    throw millpondError("MILLPOND_E_STATE_BROKEN", `the state directory cannot be made: ${message}`, {
      cause,
    });
  }
}

async function listen(server: HttpServer, { host, port }: ResolvedOptions): Promise<string> {
  try {
    return await server.listen({ host, port });
  } catch (cause) {
    if (errorCodeOf(cause) !== undefined) {
      throw cause;
    }
    const message = cause instanceof Error ? cause.message : String(cause);
    const isTaken = cause instanceof Error && "code" in cause && cause.code === "EADDRINUSE";
    const code = isTaken ? "MILLPOND_E_ADDRESS_IN_USE" : "MILLPOND_E_INVALID";
    throw millpondError(code, `the controller cannot listen on ${host}:${port}: ${message}`, { cause });
  }
}
