// SPDX-License-Identifier: Apache-2.0

// Who calls, and what a caller may see.

import { createContextKey, type HandlerContext } from "@connectrpc/connect";
import { millpondError } from "@millpond/api";
import type { Pool } from "./pool.ts";
import type { ClaimRecord } from "./store/store.ts";

/**
 * Users make claims of one tenant; administrators of a tenant make its tokens too; agents report nodes; administrators
 * may do all that is not an agent's.
 */
export const roles = ["user", "tenant-admin", "agent", "admin"] as const;

export type Role = (typeof roles)[number];

export function isRole(text: string): text is Role {
  return roles.some((role) => role === text);
}

/** Whose token a request carries. */
export interface Caller {
  /** Of the token. */
  readonly name: string;
  readonly role: Role;
  /** Whose claims it is about; empty: those of all. */
  readonly tenant: string;
  /** Revision at which the token was made; 0: it was there from the first. */
  readonly madeAt: number;
}

export const callerKey = createContextKey<Caller | undefined>(undefined, { description: "caller" });

/** The caller of a method, which the server has let in. */
export function callerOf({ values }: Pick<HandlerContext, "values">): Caller {
  const caller = values.get(callerKey);
  if (caller === undefined) {
    throw millpondError("MILLPOND_E_INTERNAL", "a call came past the gate");
  }
  return caller;
}

/** Which claims are there for somebody. */
export type Sight = (claim: Pick<ClaimRecord, "tenant">) => boolean;

export const seesAll: Sight = () => true;

export function sightOf({ tenant }: Caller): Sight {
  return tenant === "" ? seesAll : (claim) => claim.tenant === tenant;
}

/**
 * The tenant that a request is about: what it says, or the caller's where it says nothing.
 *
 * @throws MILLPOND_E_FORBIDDEN whether that tenant exists or not
 */
export function scopeTenant(caller: Caller, asked: string): string {
  if (caller.tenant !== "" && asked !== "" && asked !== caller.tenant) {
    throw millpondError("MILLPOND_E_FORBIDDEN", `the token is for the tenant ${caller.tenant} only`, {
      remedy: "Leave the tenant out, or use a token for that tenant.",
    });
  }
  return asked === "" ? caller.tenant : asked;
}

/** Leaves the names of claims and gangs that are not there for somebody out of a text of the scheduler. */
export function hideNames(pool: Pool, text: string, sees: Sight): string {
  if (sees === seesAll) {
    return text;
  }
  return text.replace(/\b(claim|gang) ([a-z0-9-]+)/g, (whole, kind: string, name: string) => {
    const meant =
      kind === "claim"
        ? [pool.ledger.claims.get(name)].filter((claim) => claim !== undefined)
        : [...pool.ledger.claims.values()].filter(({ gang }) => gang === name);
    return meant.length === 0 || meant.some(sees) ? whole : `a ${kind} of another tenant`;
  });
}
