// SPDX-License-Identifier: Apache-2.0

// The logins of browsers and command lines: create, list, end.

import { millpondError, quote } from "@millpond/api";
import { loginSeconds, revokedSeconds } from "../auth/active-logins.ts";
import type { Caller } from "../domain/caller.ts";
import type { LoginKind, LoginRecord } from "../domain/records.ts";
import type { Pool } from "../pool/pool.ts";
import { currentCall } from "../state/audit.ts";
import type { Transaction } from "../state/transaction.ts";

/** Beyond this number, the oldest login of the same user ends. */
const maxOfUser = 32;

/** Beyond this number, the oldest login of the same tenant ends: a provider may name any number of users. */
const maxOfTenant = 2000;

export interface NewLogin {
  readonly id: string;
  readonly kind: LoginKind;
}

/**
 * Records a login, before its cookie or token is handed out.
 *
 * @throws MILLPOND_E_INVALID, MILLPOND_E_ALREADY_EXISTS
 */
export async function createLogin(pool: Pool, caller: Caller, { id, kind }: NewLogin): Promise<void> {
  const { name: who, tenant, login } = caller;
  if (!/^[0-9a-f]{16}$/.test(id) || (login !== undefined && login.id !== id)) {
    throw millpondError("MILLPOND_E_INVALID", `${quote(id)} is not the id of this login`);
  }
  await pool.mutate((transaction) => {
    const { now, logins } = transaction;
    if (logins.get(id) !== undefined) {
      throw millpondError("MILLPOND_E_ALREADY_EXISTS", `the login ${id} already exists`);
    }
    forgetEnded(transaction);
    const others = logins.all().filter((each) => each.tenant === tenant && !each.isRevoked);
    const own = others.filter((each) => each.who === who);
    endOldest(transaction, own, maxOfUser - 1);
    endOldest(transaction, others, maxOfTenant - 1);
    const expiresAt = Math.min(now + loginSeconds, caller.expiresAt ?? Number.POSITIVE_INFINITY);
    logins.set(id, { id, who, tenant, kind, createdAt: now, expiresAt, isRevoked: false });
  });
}

/** The logins that have not ended and that a caller may end, oldest first. */
export function listLogins(pool: Pool, caller: Caller, now: number): LoginRecord[] {
  return [...pool.ledger.logins.values()]
    .filter((login) => !isOver(login, now) && mayEnd(caller, login))
    .sort((a, b) => a.createdAt - b.createdAt || (a.id < b.id ? -1 : 1));
}

/**
 * Ends a login at once.
 *
 * @param id Empty: that of the caller's own token.
 * @throws MILLPOND_E_NOT_FOUND also for a login that the caller does not see
 */
export async function revokeLogin(pool: Pool, caller: Caller, id: string): Promise<LoginRecord> {
  const own = id === "" ? caller.login?.id : id;
  if (own === undefined) {
    throw millpondError(
      "MILLPOND_E_INVALID",
      "the request names no login, and its token does not belong to one",
      {
        remedy: "Name one: `millpond get logins`.",
      },
    );
  }
  currentCall()?.name(`login/${own}`);
  return await pool.mutate((transaction) => {
    const login = transaction.logins.get(own);
    if (login === undefined || isOver(login, transaction.now) || !mayEnd(caller, login)) {
      throw millpondError("MILLPOND_E_NOT_FOUND", `there is no login ${quote(own)}`, {
        remedy: "List them with `millpond get logins`.",
      });
    }
    forgetEnded(transaction);
    end(transaction, login);
    return login;
  });
}

function isOver({ isRevoked, expiresAt }: LoginRecord, now: number): boolean {
  return isRevoked || expiresAt <= now;
}

/** Users end their own logins, administrators of a tenant those of the tenant. */
function mayEnd(caller: Caller, { who, tenant }: LoginRecord): boolean {
  if (caller.role === "admin") {
    return true;
  }
  return caller.tenant === tenant && (caller.role === "tenant-admin" || caller.name === who);
}

/** The record stays for as long as the login would be accepted without it. */
function end({ now, logins }: Transaction, login: LoginRecord): void {
  if (login.createdAt + revokedSeconds <= now) {
    logins.delete(login.id);
  } else {
    logins.set(login.id, { ...login, isRevoked: true });
  }
}

function endOldest(transaction: Transaction, logins: readonly LoginRecord[], most: number): void {
  const oldest = logins.toSorted((a, b) => a.createdAt - b.createdAt);
  for (const login of oldest.slice(0, Math.max(0, oldest.length - most))) {
    end(transaction, login);
  }
}

function forgetEnded({ now, logins }: Transaction): void {
  for (const { id, expiresAt, createdAt, isRevoked } of logins.all()) {
    if (expiresAt <= now || (isRevoked && createdAt + revokedSeconds <= now)) {
      logins.delete(id);
    }
  }
}
