// SPDX-License-Identifier: Apache-2.0

// Tokens of logins by an OpenID provider. Browsers have them sealed in the login's cookie; `millpond login --oidc`
// receives them unsealed, over the same connection that it will use them on.

import { timingSafeEqual } from "node:crypto";
import { type Caller, oidcPrefix, type OidcLogin } from "../domain/caller.ts";
import type { KeyRing } from "./key-ring.ts";
import { type ActiveLogins, loginSeconds } from "./active-logins.ts";
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
 * Derived from a key of the pool, so none is stored. A token names its login and its rule: it has the rights of that rule in the
 * present configuration, and ends when the login or the rule does.
 */
export class OidcTokens {
  readonly #keys: KeyRing;
  readonly #rules: ReadonlyMap<string, OidcRule>;
  readonly #active: ActiveLogins;
  readonly #now: () => number;

  /**
   * @param rules The current rules; none: no such token is valid.
   * @param now Unix seconds.
   */
  constructor(keys: KeyRing, rules: readonly OidcRule[], active: ActiveLogins, now: () => number) {
    this.#active = active;
    this.#keys = keys;
    this.#rules = new Map(rules.map((rule) => [rule.id, rule]));
    this.#now = now;
  }

  /** Creates the token of a new login, which is not recorded yet. */
  make({ name, rule }: OidcUser): string {
    const secret = this.#keys.secret("oidc tokens");
    const user = Buffer.from(name, "utf8").toString("base64url");
    const { id, madeAt } = this.#active.begin();
    const said = `${user}.${rule.id}.${(madeAt + loginSeconds).toString(36)}.${id}.${secret.id}`;
    return `${prefix}${said}.${sealOf(said, secret)}`;
  }

  /** Undefined if the token is not ours, or its login or its rule has ended. */
  verify(token: string): Caller | "expired" | undefined {
    const match =
      /^mp-oidc-(([\w-]{2,86})\.([\w-]{11})\.([0-9a-z]{1,9})\.([0-9a-f]{16})\.([0-9a-f]{16}))\.([\w-]{43})$/.exec(
        token,
      );
    if (match === null) {
      return undefined;
    }
    const [, said = "", user = "", ruleId = "", end = "", id = "", key, seal = ""] = match;
    const isOurs = this.#keys
      .secrets("oidc tokens", key)
      .some((secret) => timingSafeEqual(Buffer.from(sealOf(said, secret)), Buffer.from(seal)));
    const rule = this.#rules.get(ruleId);
    const login = { id, rule: ruleId };
    if (!isOurs || rule === undefined) {
      return undefined;
    }
    const expiresAt = Number.parseInt(end, 36);
    if (expiresAt <= this.#now()) {
      return "expired";
    }
    if (!this.holds({ ...login, expiresAt })) {
      return undefined;
    }
    const name = oidcPrefix + Buffer.from(user, "base64url").toString("utf8");
    return { name, role: rule.role, tenant: rule.tenant, madeAt: 0, expiresAt, login };
  }

  /** Whether neither the login nor its rule has been ended. */
  holds({ id, rule, expiresAt }: OidcLogin & { readonly expiresAt: number }): boolean {
    return this.#rules.has(rule) && this.#active.isActive({ id, madeAt: expiresAt - loginSeconds });
  }
}
