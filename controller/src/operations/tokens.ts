// SPDX-License-Identifier: Apache-2.0

// Token administration: create, list, revoke.

import { formatDuration, millpondError, quote } from "@millpond/api";
import { scopeTenant } from "../auth/visibility.ts";
import { type Caller, type StoredRole, isRole, roles } from "../domain/caller.ts";
import type { TokenRecord } from "../domain/records.ts";
import type { Pool } from "../pool/pool.ts";
import { defaultTenantName } from "../domain/claim-spec.ts";
import { hashOf, makeSecret } from "../auth/tokens.ts";

/** The most tokens of a pool: the verifier keeps all of them in memory. */
const maxTokens = 10_000;
/** The most tokens of one tenant. */
const maxTenantTokens = 1000;
/**
 * The number of tokens that every tenant may have, however many the others have: administrators decide how many tenants
 * there are.
 */
const leastTenantTokens = 100;
/** The part of the pool's tokens that is reserved for administrators: tenants acting together cannot lock them out. */
const tokensForAdministrators = 1000;
const maxLifetimeSeconds = 10 * 365 * 86_400;

export interface TokenRequest {
  readonly name: string;
  readonly role: string;
  /** Empty: the caller's tenant, or the default one. */
  readonly tenant: string;
  /** The node that an agent may report. Empty: the node of the first agent that joins with the token. */
  readonly node: string;
  /** 0: forever. */
  readonly lifetimeSeconds: number;
}

/**
 * Creates a token.
 *
 * @throws MILLPOND_E_INVALID, MILLPOND_E_FORBIDDEN, MILLPOND_E_NOT_FOUND, MILLPOND_E_ALREADY_EXISTS,
 *   MILLPOND_E_TOO_MANY_TOKENS
 */
export async function createToken(
  pool: Pool,
  caller: Caller,
  request: TokenRequest,
): Promise<{ readonly token: TokenRecord; readonly secret: string }> {
  const role = checkRole(caller, request.role);
  const { lifetimeSeconds } = request;
  if (lifetimeSeconds < 0 || lifetimeSeconds > maxLifetimeSeconds) {
    throw millpondError(
      "MILLPOND_E_INVALID",
      `lifetimeSeconds is ${lifetimeSeconds}, not between 0 and ${maxLifetimeSeconds} (10 years)`,
    );
  }
  const isOfTenant = role === "user" || role === "tenant-admin";
  if (!isOfTenant && request.tenant !== "") {
    throw millpondError("MILLPOND_E_INVALID", `a token of the role ${role} cannot have a tenant`);
  }
  if (role !== "agent" && request.node !== "") {
    throw millpondError("MILLPOND_E_INVALID", `a token of the role ${role} cannot have a node`);
  }
  const tenant = isOfTenant ? scopeTenant(caller, request.tenant) || defaultTenantName : "";
  const secret = makeSecret(role);
  const token = await pool.mutate((transaction) => {
    if (tenant !== "" && tenant !== defaultTenantName && transaction.tenants.get(tenant) === undefined) {
      throw millpondError("MILLPOND_E_NOT_FOUND", `there is no tenant ${quote(tenant)}`, {
        remedy: "List them with `millpond get tenants`.",
      });
    }
    if (transaction.tokens.get(request.name) !== undefined) {
      throw millpondError("MILLPOND_E_ALREADY_EXISTS", `the token name ${request.name} is in use`, {
        remedy: "Choose another name.",
      });
    }
    refuseToOutlive(transaction.tokens.get(caller.name)?.expiresAt ?? null, transaction.now, lifetimeSeconds);
    refuseTooManyTokens(transaction.tokens.all(), caller, tenant);
    const record: TokenRecord = {
      name: request.name,
      hash: hashOf(secret),
      role,
      tenant,
      node: request.node,
      createdAt: transaction.now,
      expiresAt: lifetimeSeconds === 0 ? null : transaction.now + lifetimeSeconds,
      createdBy: caller.name,
      revision: transaction.revision,
    };
    transaction.tokens.set(record.name, record);
    return record;
  });
  return { token, secret };
}

/**
 * @param tenant The tenant of the token to be created; empty: none.
 * @throws MILLPOND_E_TOO_MANY_TOKENS
 */
export function refuseTooManyTokens(
  tokens: readonly Pick<TokenRecord, "tenant">[],
  caller: Pick<Caller, "role">,
  tenant: string,
): void {
  const own = tenant === "" ? 0 : tokens.filter((token) => token.tenant === tenant).length;
  if (own >= maxTenantTokens) {
    throw millpondError("MILLPOND_E_TOO_MANY_TOKENS", `the tenant ${tenant} has ${own} tokens`);
  }
  const most = caller.role === "admin" ? maxTokens : maxTokens - tokensForAdministrators;
  if (tokens.length >= most && (tenant === "" || own >= leastTenantTokens)) {
    throw millpondError("MILLPOND_E_TOO_MANY_TOKENS", `there are ${tokens.length} tokens in the pool`);
  }
}

/** @throws MILLPOND_E_NOT_FOUND also for a token that the caller does not see */
export async function revokeToken(pool: Pool, caller: Caller, name: string): Promise<void> {
  await pool.mutate((transaction) => {
    const token = transaction.tokens.get(name);
    if (token === undefined || !seesToken(caller, token)) {
      throw millpondError("MILLPOND_E_NOT_FOUND", `there is no token ${quote(name)}`, {
        remedy: "List them with `millpond token list`.",
      });
    }
    transaction.tokens.delete(name);
    for (const login of transaction.logins.all().filter(({ who }) => who === name)) {
      transaction.logins.delete(login.id);
    }
  });
}

/** Sorted by name. */
export function listTokens(pool: Pool, caller: Caller): TokenRecord[] {
  return [...pool.ledger.tokens.values()]
    .filter((token) => seesToken(caller, token))
    .sort((a, b) => (a.name < b.name ? -1 : 1));
}

function seesToken(caller: Caller, { tenant }: TokenRecord): boolean {
  return caller.tenant === "" || caller.tenant === tenant;
}

/** @throws MILLPOND_E_INVALID, MILLPOND_E_FORBIDDEN */
function checkRole(caller: Caller, text: string): StoredRole {
  if (!isRole(text)) {
    throw millpondError("MILLPOND_E_INVALID", `the role ${quote(text)} is not one of ${roles.join(", ")}`);
  }
  if (caller.role !== "admin" && text !== "user" && text !== "tenant-admin") {
    throw millpondError(
      "MILLPOND_E_FORBIDDEN",
      `creating a token of the role ${text} needs a token of the role admin, this token has the role ${caller.role}`,
    );
  }
  return text;
}

/** Otherwise a token could outlive the token that created it. */
function refuseToOutlive(makerExpiresAt: number | null, now: number, lifetimeSeconds: number): void {
  if (makerExpiresAt === null || (lifetimeSeconds > 0 && now + lifetimeSeconds <= makerExpiresAt)) {
    return;
  }
  const left = Math.max(0, makerExpiresAt - now);
  throw millpondError(
    "MILLPOND_E_FORBIDDEN",
    `a token cannot outlive the token that creates it, which expires in ${formatDuration(left)}`,
    {
      remedy: `Give it a shorter life, such as \`--expires ${formatDuration(left)}\`, or make it with another token.`,
    },
  );
}
