// SPDX-License-Identifier: Apache-2.0

/**
 * Users create claims of one tenant; administrators of a tenant also create its tokens; agents report nodes; administrators
 * may do everything except what is reserved for agents.
 */
export const roles = ["user", "tenant-admin", "agent", "admin"] as const;

export type StoredRole = (typeof roles)[number];

/** Programs of one claim, and those that create claims for themselves, have tokens that are not stored. */
export type Role = StoredRole | "claim" | "program";

export function isRole(text: string): text is StoredRole {
  return roles.some((role) => role === text);
}

/** The identity of a request, by its token. */
export interface Caller {
  /** Name of the token. */
  readonly name: string;
  readonly role: Role;
  /** Tenant whose claims it may access; empty: all tenants. */
  readonly tenant: string;
  /** Revision at which the token was created; 0: it exists from the start. */
  readonly madeAt: number;
  /** For a created token of an agent: the only node that it may report; empty until a node has joined with it. */
  readonly node?: string;
  /** The only claim that it may access; absent: all of the tenant. */
  readonly claim?: { readonly name: string; readonly createdAt: number };
  /** It may access only claims that were created with this token; absent: all of the tenant. */
  readonly program?: string;
  /** With `program`: the name of the token that its token was created with. */
  readonly creator?: string;
  /** When the token expires, Unix seconds; absent: never. */
  readonly expiresAt?: number;
  /** Set for a login by an OpenID provider. */
  readonly login?: OidcLogin;
}

/** What a login by an OpenID provider rests on, besides its time. */
export interface OidcLogin {
  /** See `LoginRecord`. */
  readonly id: string;
  /** Id of the rule that gives the rights. */
  readonly rule: string;
}

/** The prefix of the names of users that an OpenID provider has named: no token that is created has such a name. */
export const oidcPrefix = "oidc:";

/** Bytes of such a name: with all else, the token of a login stays below the limit of a header. */
export const maxOidcNameBytes = 64;

/** Whether an OpenID provider may give a user this name: it is shown in the audit as it is. */
export function isOidcName(text: string): boolean {
  return /^[\p{L}\p{N}.@_+:|/-]+$/u.test(text) && Buffer.byteLength(text) <= maxOidcNameBytes;
}

/** Whether a token could have the name: those of the state directory and the environment have a colon in theirs. */
export function isTokenName(text: string): boolean {
  return text.startsWith(oidcPrefix)
    ? isOidcName(text.slice(oidcPrefix.length))
    : /^[a-z0-9](?:[a-z0-9:-]{0,61}[a-z0-9])?$/.test(text);
}

/** The user to whom a caller's objects are charged. */
export function userOf({ name, creator }: Pick<Caller, "name" | "creator">): string {
  return creator ?? name;
}
