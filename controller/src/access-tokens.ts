// SPDX-License-Identifier: Apache-2.0

// What is done with tokens.

import { millpondError, quote } from "@millpond/api";
import { type Caller, isRole, type Role, roles, scopeTenant } from "./callers.ts";
import type { Pool } from "./pool.ts";
import { defaultTenantName } from "./store/claim-spec.ts";
import type { TokenRecord } from "./store/store.ts";
import { hashOf, makeSecret } from "./tokens.ts";

const maxTokens = 10_000;
const maxLifetimeSeconds = 10 * 365 * 86_400;

export interface TokenRequest {
  readonly name: string;
  readonly role: string;
  /** Empty: the caller's, or the default one. */
  readonly tenant: string;
  /** 0: for ever. */
  readonly lifetimeSeconds: number;
}

/**
 * Makes a token.
 *
 * @throws MILLPOND_E_INVALID, MILLPOND_E_FORBIDDEN, MILLPOND_E_NOT_FOUND, MILLPOND_E_ALREADY_EXISTS
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
      `lifetimeSeconds is ${lifetimeSeconds}, not within 0 and ${maxLifetimeSeconds} (10 years)`,
    );
  }
  const isOfTenant = role === "user" || role === "tenant-admin";
  if (!isOfTenant && request.tenant !== "") {
    throw millpondError("MILLPOND_E_INVALID", `a token of the role ${role} is for no tenant`);
  }
  const tenant = isOfTenant ? scopeTenant(caller, request.tenant) || defaultTenantName : "";
  const secret = makeSecret(role);
  const token = await pool.mutate((transaction) => {
    if (tenant !== "" && tenant !== defaultTenantName && transaction.tenant(tenant) === undefined) {
      throw millpondError("MILLPOND_E_NOT_FOUND", `there is no tenant ${quote(tenant)}`, {
        remedy: "List them with `millpond get tenants`.",
      });
    }
    if (transaction.token(request.name) !== undefined) {
      throw millpondError("MILLPOND_E_ALREADY_EXISTS", `the token name ${request.name} is in use`, {
        remedy: "Choose another name.",
      });
    }
    if (transaction.allTokens().length >= maxTokens) {
      throw millpondError("MILLPOND_E_INVALID", `there are ${maxTokens} tokens already`, {
        remedy: "Revoke some that are no longer used.",
      });
    }
    const record: TokenRecord = {
      name: request.name,
      hash: hashOf(secret),
      role,
      tenant,
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

/** @throws MILLPOND_E_NOT_FOUND also for a token that the caller does not see */
export async function revokeToken(pool: Pool, caller: Caller, name: string): Promise<void> {
  await pool.mutate((transaction) => {
    const token = transaction.token(name);
    if (token === undefined || !seesToken(caller, token)) {
      throw millpondError("MILLPOND_E_NOT_FOUND", `there is no token ${quote(name)}`, {
        remedy: "List them with `millpond token list`.",
      });
    }
    transaction.tokens.set(name, null);
  });
}

/** In order of their names. */
export function listTokens(pool: Pool, caller: Caller): TokenRecord[] {
  return [...pool.ledger.tokens.values()]
    .filter((token) => seesToken(caller, token))
    .sort((a, b) => (a.name < b.name ? -1 : 1));
}

function seesToken(caller: Caller, { tenant }: TokenRecord): boolean {
  return caller.tenant === "" || caller.tenant === tenant;
}

/** @throws MILLPOND_E_INVALID, MILLPOND_E_FORBIDDEN */
function checkRole(caller: Caller, text: string): Role {
  if (!isRole(text)) {
    throw millpondError("MILLPOND_E_INVALID", `the role ${quote(text)} is not one of ${roles.join(", ")}`);
  }
  if (caller.role !== "admin" && text !== "user" && text !== "tenant-admin") {
    throw millpondError(
      "MILLPOND_E_FORBIDDEN",
      `to make a token of the role ${text} needs a token of the role admin, this is one of the role ${caller.role}`,
    );
  }
  return text;
}
