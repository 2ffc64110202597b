// SPDX-License-Identifier: Apache-2.0

// The identity of a caller, and its visibility.

import { createContextKey, type HandlerContext } from "@connectrpc/connect";
import { type MayKnow, mayKnowAll, millpondError } from "@millpond/api";
import type { Caller } from "../domain/caller.ts";
import type { ClaimRecord } from "../domain/records.ts";

export const callerKey = createContextKey<Caller | undefined>(undefined, { description: "caller" });

/** The caller of a method, as authenticated by the server. */
export function callerOf({ values }: Pick<HandlerContext, "values">): Caller {
  const caller = values.get(callerKey);
  if (caller === undefined) {
    throw millpondError("MILLPOND_E_INTERNAL", "a call reached its handler without authentication");
  }
  return caller;
}

/** Whether a claim is visible to a caller. */
export type Visibility = (claim: Pick<ClaimRecord, "name" | "tenant" | "createdAt" | "program">) => boolean;

export const seesAll: Visibility = () => true;

export function visibilityOf({
  tenant,
  claim: own,
  program,
}: Pick<Caller, "tenant" | "claim" | "program">): Visibility {
  if (program !== undefined) {
    return (claim) => claim.tenant === tenant && claim.program === program;
  }
  if (own !== undefined) {
    // A later claim with the same name is a different claim.
    return (claim) => claim.tenant === tenant && claim.name === own.name && claim.createdAt === own.createdAt;
  }
  return tenant === "" ? seesAll : (claim) => claim.tenant === tenant;
}

/**
 * The tenant of a request: the named one, or by default the caller's.
 *
 * @throws MILLPOND_E_FORBIDDEN whether that tenant exists or not
 */
export function scopeTenant(caller: Caller, asked: string): string {
  if (caller.tenant !== "" && asked !== "" && asked !== caller.tenant) {
    throw millpondError("MILLPOND_E_FORBIDDEN", `the token is for the tenant ${caller.tenant} only`, {
      remedy: "Omit the tenant, or use a token for that tenant.",
    });
  }
  return asked === "" ? caller.tenant : asked;
}

/**
 * Which claims and gangs may appear in the reasons that a caller reads: those of its tenant; for a token of a claim,
 * only that claim. A program that creates claims reads no names of other claims.
 */
export function mayKnowOf({
  tenant,
  claim: own,
  program,
}: Pick<Caller, "tenant" | "claim" | "program">): MayKnow {
  if (program !== undefined) {
    return () => false;
  }
  if (own !== undefined) {
    return ({ kind, name, tenant: theirs }) => kind === "claim" && name === own.name && theirs === tenant;
  }
  return tenant === "" ? mayKnowAll : ({ tenant: theirs }) => theirs === tenant;
}
