// SPDX-License-Identifier: Apache-2.0

// Tokens of logins by an OpenID provider. Browsers have them sealed in the cookie of the login; `millpond login --oidc` gets them
// in clear, over the connection by which it uses them.

import { timingSafeEqual } from "node:crypto";
import { type Caller, oidcPrefix } from "../domain/caller.ts";
import type { KeyRing } from "./key-ring.ts";
import { loginSeconds } from "./login-sessions.ts";
import type { OidcRule } from "./oidc-config.ts";
import { sealOf } from "./tokens.ts";

const prefix = "mp-oidc-";

/** Whether a token is of a login by a provider, valid or not. */
export function isOidcToken(text: string): boolean {
  return text.startsWith(prefix);
}

/** A user whom the provider has named, and the rule that gives the rights. */
export interface OidcUser {
  readonly name: string;
  readonly rule: OidcRule;
}

/**
 * Derived from a key of the pool, so none is stored. A token names its rule: it has the rights of that rule in the present
 * configuration, and ends when the rule does.
 */
export class OidcTokens {
  readonly #keys: KeyRing;
  readonly #rules: ReadonlyMap<string, OidcRule>;
  readonly #now: () => number;

  /**
   * @param rules The present ones; none: no such token is valid.
   * @param now Unix seconds.
   */
  constructor(keys: KeyRing, rules: readonly OidcRule[], now: () => number) {
    this.#keys = keys;
    this.#rules = new Map(rules.map((rule) => [rule.id, rule]));
    this.#now = now;
  }

  make({ name, rule }: OidcUser): string {
    const secret = this.#keys.secret("oidc tokens");
    const user = Buffer.from(name, "utf8").toString("base64url");
    const said = `${user}.${rule.id}.${(this.#now() + loginSeconds).toString(36)}.${secret.id}`;
    return `${prefix}${said}.${sealOf(said, secret)}`;
  }

  /** Undefined if the token is not ours, or its rule no longer exists. */
  verify(token: string): Caller | "expired" | undefined {
    const match = /^mp-oidc-(([\w-]{2,86})\.([\w-]{11})\.([0-9a-z]{1,9})\.([0-9a-f]{16}))\.([\w-]{43})$/.exec(
      token,
    );
    if (match === null) {
      return undefined;
    }
    const [, said = "", user = "", id = "", end = "", key, seal = ""] = match;
    const isOurs = this.#keys
      .secrets("oidc tokens", key)
      .some((secret) => timingSafeEqual(Buffer.from(sealOf(said, secret)), Buffer.from(seal)));
    const rule = this.#rules.get(id);
    if (!isOurs || rule === undefined) {
      return undefined;
    }
    const expiresAt = Number.parseInt(end, 36);
    if (expiresAt <= this.#now()) {
      return "expired";
    }
    const name = oidcPrefix + Buffer.from(user, "base64url").toString("utf8");
    return { name, role: rule.role, tenant: rule.tenant, madeAt: 0, expiresAt, rule: id };
  }

  /** Whether a rule of that id exists: ids change with their rules. */
  hasRule(id: string): boolean {
    return this.#rules.has(id);
  }
}
