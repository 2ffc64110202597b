// SPDX-License-Identifier: Apache-2.0

import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import {
  AccessService,
  AgentService,
  ClaimService,
  errorCodeOf,
  millpondError,
  PoolService,
  QueueService,
  readTicket,
} from "@millpond/api";
import { authorityPath, defaultConnectionLimits, makeFolders, OtlpExporter } from "@millpond/platform";
import packageJson from "../package.json" with { type: "json" };
import type { AuditEntry } from "./domain/records.ts";
import { IdleCalls } from "./auth/idle-calls.ts";
import { CallLimits, defaultCallsInFlight } from "./auth/call-limits.ts";
import { CallGuard } from "./auth/call-guard.ts";
import type { Role } from "./domain/caller.ts";
import { unixSeconds } from "./timers/clock.ts";
import { LeaderProxy } from "./rpc/leader-proxy.ts";
import { Console } from "./http/console.ts";
import { readConsoleFiles } from "./http/console-files.ts";
import { type Handlers, makeHandlers } from "./http/handlers.ts";
import { type LogLevel, makeLog } from "./log.ts";
import { readDcgmMetrics } from "./http/dcgm-metrics.ts";
import { readMetrics } from "./http/metrics.ts";
import { type ControllerOptions, type ResolvedOptions, resolveOptions } from "./options.ts";
import { ClaimTraces } from "./pool/claim-traces.ts";
import type { Pool } from "./pool/pool.ts";
import { LeaderElector } from "./ha/leader-election.ts";
import { type HttpServer, makeServer } from "./http/server.ts";
import { makeAccessService } from "./rpc/access-service.ts";
import { makeAgentService } from "./rpc/agent-service.ts";
import { makeClaimService } from "./rpc/claim-service.ts";
import { makePoolService } from "./rpc/pool-service.ts";
import { makeQueueService } from "./rpc/queue-service.ts";
import { Webhooks } from "./notifications/webhooks.ts";
import { AuditLog } from "./store/audit-log.ts";
import { SqliteStore } from "./store/sqlite-store.ts";
import { PoolKey } from "./state/pool-key.ts";
import type { Store } from "./state/store.ts";
import { certificateSource } from "./http/tls.ts";
import { KeyRing } from "./auth/key-ring.ts";
import { OidcTokens } from "./auth/oidc-tokens.ts";
import { OidcPages } from "./http/oidc-pages.ts";
import { ActiveLogins } from "./auth/active-logins.ts";
import { LoginSessions } from "./auth/login-sessions.ts";
import { LoginManager } from "./logins/login-manager.ts";
import { type CreatorToken, ProgramTokens } from "./auth/program-tokens.ts";
import { ClaimTokens, type FixedToken, hashOf, readOrMakeToken, TokenVerifier } from "./auth/tokens.ts";

/** A running controller. Disposing of it stops it: calls in progress are answered, and acknowledged changes are durable. */
export interface Controller extends AsyncDisposable {
  /** Base URL, with the actual port. */
  readonly url: string;
  /** UUID of the state. */
  readonly identity: string;
  /** The administrator's token in the state directory. */
  readonly userToken: string;
  /** The token in the state directory for agents. */
  readonly agentToken: string;
  /** Rereads its certificate, and sets the log level. */
  reload(change: { readonly logLevel: LogLevel }): void;
}

/**
 * Starts a controller.
 *
 * @throws MILLPOND_E_INVALID, MILLPOND_E_TLS, MILLPOND_E_ADDRESS_IN_USE, MILLPOND_E_STATE_LOCKED,
 *   MILLPOND_E_STATE_NEWER, MILLPOND_E_STATE_BROKEN, MILLPOND_E_POOL_KEY
 */
export async function startController(options: ControllerOptions): Promise<Controller> {
  const resolved = resolveOptions(options);
  const log = options.log ?? makeLog("info");
  const { stateDirectory, clock } = resolved;
  makeStateDirectory(stateDirectory);
  await using cleanup = new AsyncDisposableStack();
  const poolKey = PoolKey.readOrMake(resolved.keyFile);
  const store = cleanup.adopt(await openStore(resolved, poolKey), (each) => each.close());
  const userToken = readOrMakeToken(stateDirectory, "user");
  const agentToken = readOrMakeToken(stateDirectory, "agent");
  const auditSink = resolved.auditLog && cleanup.use(await AuditLog.open({ ...resolved.auditLog, log }));
  const { tracing } = options;
  const exporter =
    tracing &&
    cleanup.use(
      new OtlpExporter({
        ...tracing,
        resource: { "service.name": "millpond-controller", "service.version": packageJson.version },
        log,
      }),
    );
  const traces = exporter && cleanup.use(new ClaimTraces((span) => exporter.add(span), clock));
  const { elector, state } = await LeaderElector.open({
    store,
    clock,
    log,
    onPool: (pool) => begin(pool),
    auditSink,
    traces,
  });
  cleanup.use(elector);

  const keys = new KeyRing(
    poolKey,
    () => elector.pool.ledger.signingKeys,
    () => unixSeconds(clock),
  );
  const { version } = packageJson;
  const startedAt = unixSeconds(clock);
  const shutdown = new AbortController();
  const claimTokens = new ClaimTokens(keys);
  const fixed = fixedTokens({ userToken, agentToken }, resolved);
  const now = () => unixSeconds(clock);
  const activeLogins = new ActiveLogins((id) => elector.pool.ledger.logins.get(id), now);
  const oidcTokens = new OidcTokens(keys, resolved.oidc?.rules ?? [], activeLogins, now);
  const programTokens = new ProgramTokens(
    keys,
    {
      find: (name) => elector.pool.ledger.tokens.get(name) ?? findFixed(fixed, name),
      holds: (login) => oidcTokens.holds(login),
    },
    () => unixSeconds(clock),
  );
  const tokens = new TokenVerifier(
    fixed,
    (hash) => elector.pool.ledger.tokenByHash(hash),
    () => unixSeconds(clock),
    [claimTokens, programTokens, oidcTokens],
  );
  const sessions = new LoginSessions(keys, activeLogins, now);
  const leader = new LeaderProxy({ elector, readCa: () => readCa(resolved) });
  const connectionLimits = options.connectionLimits ?? defaultConnectionLimits();
  const limits = new CallLimits({
    changesPerSecond: resolved.changesPerSecond,
    inFlight: Math.max(1, Math.min(defaultCallsInFlight, Math.floor(connectionLimits.mostOfAddress / 4))),
    tell: (account, why) => log.warn({ account, why }, "calls are refused: the limit is reached"),
  });
  const loginManager = new LoginManager({
    pool: () => elector.pool,
    isLeading: () => elector.isLeading,
    leader,
    limits,
  });
  const handlersOf = (pool: Pool): Handlers => {
    const idleCalls = new IdleCalls({
      after: (delayMs, callback) => clock.after(delayMs, callback),
      now: () => unixSeconds(clock),
      write: (entry) => writeAudit(pool, entry),
      onFailure: (error) =>
        log.warn({ err: error }, "the number of calls that changed nothing is not recorded"),
    });
    const guard = new CallGuard({
      tokens,
      limits,
      log,
      requireLead: (what) => elector.requireLead(what),
      writeAudit: (call, result) => idleCalls.record(call, result),
    });
    return makeHandlers({ guard, leader }, (registry) => {
      registry.service(ClaimService, makeClaimService(pool, { keys, claimTokens, programTokens }));
      registry.service(
        PoolService,
        makePoolService(pool, store, {
          version,
          startedAt,
          elector,
          nextBackupPath: () => nextBackupPath(stateDirectory, clock.unixMs()),
        }),
      );
      registry.service(QueueService, makeQueueService(pool, store));
      registry.service(AccessService, makeAccessService(pool, { store, sessions, poolKey }));
      registry.service(
        AgentService,
        makeAgentService(pool, {
          version,
          keys,
          readTicket: (ticket) => readTicket(ticket, keys.findEarlier),
        }),
      );
    });
  };
  let handlers = handlersOf(elector.pool);
  const { tls } = resolved;
  const server = makeServer({
    certificates: tls === undefined ? undefined : certificateSource(tls, stateDirectory),
    names: resolved.advertise === undefined ? [] : [new URL(resolved.advertise).hostname],
    connectionLimits,
    tokens,
    log,
    shutdown: shutdown.signal,
    handlers: () => handlers,
    console: new Console({
      files: readConsoleFiles(),
      sessions,
      active: activeLogins,
      loginManager,
      tokens,
      identity: state.identity,
      isSecure: tls !== undefined,
      oidc:
        resolved.oidc &&
        new OidcPages({
          config: resolved.oidc,
          keys,
          tokens: oidcTokens,
          loginManager,
          url: () => resolved.advertise ?? url,
          now: () => unixSeconds(clock),
          log,
        }),
    }),
    metrics: {
      "/metrics": async (caller) => await readMetrics(elector, version, caller),
      "/metrics/dcgm": async (caller) => await Promise.resolve(readDcgmMetrics(elector, caller)),
    },
    checkHealth: async () => {
      await store.listEvents({ after: 0, subject: "", limit: 1, end: "newest" });
    },
  });
  cleanup.defer(async () => {
    shutdown.abort(millpondError("MILLPOND_E_SHUTTING_DOWN", "the controller is being stopped"));
    await server.close();
  });
  // Calls that wait for the previously led pool are ended with an error.
  const begin = (pool: Pool): void => {
    handlers = handlersOf(pool);
    server.endCalls(millpondError("MILLPOND_E_NOT_LEADER", "this controller is no longer the leader"));
  };
  const url = await listen(server, resolved);
  await elector.start(resolved.advertise ?? url);
  const { webhooks } = resolved;
  cleanup.use(await Webhooks.start({ configs: webhooks, elector, store, stateDirectory, clock, log }));
  log.info({ url, stateDirectory, version, controller: state.identity }, `the controller listens at ${url}`);
  const running = cleanup.move();
  return {
    url,
    identity: state.identity,
    userToken,
    agentToken,
    reload: ({ logLevel }) => {
      log.level = logLevel;
      server.renewCertificate();
      auditSink?.reload();
      log.info("reloaded");
    },
    [Symbol.asyncDispose]: async () => {
      await running.disposeAsync();
      log.info("the controller has stopped");
    },
  };
}

async function openStore({ storeUrl, stateDirectory }: ResolvedOptions, poolKey: PoolKey): Promise<Store> {
  if (storeUrl === undefined) {
    return SqliteStore.open({ directory: stateDirectory, poolKey });
  }
  // Loaded on demand: most controllers have their state in a file.
  const { PostgresStore } = await import("./store/postgres-store.ts");
  return await PostgresStore.open({ url: storeUrl, poolKey });
}

/** The authorities that other controllers are verified against; undefined: those of the host. */
function readCa({ ca, tls, stateDirectory }: ResolvedOptions): string | undefined {
  return ca ?? (tls?.kind === "own" ? readFileSync(authorityPath(stateDirectory), "utf8") : undefined);
}

/** Tokens of the state directory and of the environment; their names cannot be those of created tokens. */
function fixedTokens(
  { userToken, agentToken }: Pick<Controller, "userToken" | "agentToken">,
  { userTokens, agentTokens, takesSharedAgentTokens }: ResolvedOptions,
): FixedToken[] {
  const fixed = (secret: string, name: string, role: Role): FixedToken => ({
    secret,
    caller: { name, role, tenant: "", madeAt: 0 },
  });
  return [
    fixed(userToken, "file:user", "admin"),
    ...(takesSharedAgentTokens ? [fixed(agentToken, "file:agent", "agent")] : []),
    ...userTokens.map((secret, index) => fixed(secret, `environment:user-${index + 1}`, "admin")),
    ...agentTokens.map((secret, index) => fixed(secret, `environment:agent-${index + 1}`, "agent")),
  ];
}

function findFixed(fixed: readonly FixedToken[], name: string): CreatorToken | undefined {
  const token = fixed.find(({ caller }) => caller.name === name);
  return token && { hash: hashOf(token.secret), expiresAt: null };
}

async function writeAudit(pool: Pool, entry: AuditEntry): Promise<void> {
  await pool.ledger.change({ make: (transaction) => transaction.audit.push(entry) });
}

function makeStateDirectory(path: string): void {
  try {
    makeFolders(path, 0o700);
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

/** Path of the next requested backup, in a folder of the state directory. */
function nextBackupPath(directory: string, unixMs: number): string {
  const folder = join(directory, "backups");
  makeFolders(folder, 0o700);
  const time = new Date(unixMs).toISOString().replace(/[-:.]/g, "");
  for (let count = 1; ; count++) {
    const path = join(folder, `${time}${count === 1 ? "" : `-${count}`}.backup`);
    if (!existsSync(path)) {
      return path;
    }
  }
}
