// SPDX-License-Identifier: Apache-2.0

// The two addresses of a login by an OpenID provider: one sends the browser there, and to the other one it comes back. What
// has to match is in a cookie meanwhile, sealed: any controller of the pool can end the login.

import type { IncomingMessage } from "node:http";
import { ConnectError } from "@connectrpc/connect";
import { millpondError } from "@millpond/api";
import type { Logger } from "pino";
import type { KeyRing } from "../auth/key-ring.ts";
import type { OidcConfig } from "../auth/oidc-config.ts";
import { type OidcFlow, OidcProvider } from "../auth/oidc-provider.ts";
import type { OidcTokens } from "../auth/oidc-tokens.ts";
import { SealedTexts } from "../auth/sealed-texts.ts";
import { hashOf } from "../auth/tokens.ts";

/** How long a user may take at the provider. */
const flowSeconds = 600;

/** Answers of the provider that are verified at the same time. */
const maxFinishing = 32;

/** States of logins that have ended, beyond which the oldest is forgotten. */
const maxEnded = 10_000;

/** Longer places to return to are dropped. */
const maxReturnLength = 512;

/** The cookie's content: a login in progress, or the reason why the last one failed. */
type Kept = { readonly flow: OidcFlow; readonly to: string } | { readonly trouble: string };

export interface OidcPagesOptions {
  readonly config: OidcConfig;
  readonly keys: KeyRing;
  readonly tokens: OidcTokens;
  /** Base address of the console where the configuration has none. */
  readonly url: () => string;
  /** Unix seconds. */
  readonly now: () => number;
  readonly log: Logger;
}

/** The answer to the browser, which always leads to another page. */
export interface OidcAnswer {
  readonly location: string;
  /** The value of the cookie of logins under way; empty: none. */
  readonly kept: string;
  /** The token of the login that has succeeded. */
  readonly token?: string;
}

export class OidcPages {
  readonly #options: OidcPagesOptions;
  readonly #provider: OidcProvider;
  readonly #kept: SealedTexts<Kept>;
  /** Hashes of the states of logins that have ended: an answer is good once. */
  readonly #ended = new Set<string>();
  #finishing = 0;

  constructor(options: OidcPagesOptions) {
    const { config, keys, url, now } = options;
    this.#options = options;
    this.#provider = new OidcProvider(
      config,
      () => `${config.url === "" ? url() : config.url}/console/oidc/callback`,
      now,
    );
    this.#kept = new SealedTexts({ keys, now, purpose: "oidc flows", lifetimeSeconds: flowSeconds });
  }

  get label(): string {
    return this.#options.config.label;
  }

  get cookieSeconds(): number {
    return flowSeconds;
  }

  /** Why the last login of this browser failed; undefined: it did not. */
  troubleOf(kept: string | undefined): string | undefined {
    const value = kept === undefined ? undefined : this.#kept.unseal(kept);
    return value !== undefined && "trouble" in value ? value.trouble : undefined;
  }

  /** Sends the browser to the provider. */
  async begin(request: IncomingMessage): Promise<OidcAnswer> {
    try {
      // Another site could begin a login to see its user come back logged in.
      const site = request.headers["sec-fetch-site"];
      if (site !== undefined && site !== "same-origin" && site !== "none") {
        throw millpondError("MILLPOND_E_FORBIDDEN", "logins begin at the console's own page");
      }
      const { url, flow } = await this.#provider.begin();
      const to = returnPath(queryOf(request).get("to") ?? "");
      return { location: url.href, kept: this.#kept.seal({ flow, to }) };
    } catch (error) {
      return this.#fail(error);
    }
  }

  /** Takes the provider's answer, which the browser brings. */
  async finish(request: IncomingMessage, kept: string | undefined): Promise<OidcAnswer> {
    const { tokens, log } = this.#options;
    try {
      const begun = kept === undefined ? undefined : this.#kept.unseal(kept);
      if (begun === undefined || !("flow" in begun)) {
        throw stale("this browser has begun no login, or more than ten minutes ago");
      }
      const query = queryOf(request);
      if (query.get("state") !== begun.flow.state) {
        throw stale("the answer is for another login, such as one of another tab");
      }
      this.#end(begun.flow.state);
      const user = await this.#verify(query, begun.flow);
      log.info(
        { user: user.name, group: user.rule.group, role: user.rule.role },
        "logged in by OpenID Connect",
      );
      return { location: begun.to, kept: "", token: tokens.make(user) };
    } catch (error) {
      return this.#fail(error);
    }
  }

  async #verify(query: URLSearchParams, flow: OidcFlow) {
    if (this.#finishing >= maxFinishing) {
      throw millpondError("MILLPOND_E_TOO_MANY_CALLS", `${this.#finishing} logins are being verified`, {
        remedy: "Log in again in a moment.",
      });
    }
    this.#finishing += 1;
    try {
      return await this.#provider.finish(query.toString(), flow);
    } finally {
      this.#finishing -= 1;
    }
  }

  /** @throws MILLPOND_E_UNAUTHENTICATED where it has ended before */
  #end(state: string): void {
    const hash = hashOf(state);
    if (this.#ended.has(hash)) {
      throw stale("this login has ended before");
    }
    const [oldest] = this.#ended;
    if (oldest !== undefined && this.#ended.size >= maxEnded) {
      this.#ended.delete(oldest);
    }
    this.#ended.add(hash);
  }

  #fail(error: unknown): OidcAnswer {
    const failure = ConnectError.from(error);
    this.#options.log.warn({ err: error }, "a login by OpenID Connect is refused");
    return { location: "/console/login", kept: this.#kept.seal({ trouble: failure.rawMessage }) };
  }
}

function queryOf({ url = "" }: IncomingMessage): URLSearchParams {
  const start = url.indexOf("?");
  return new URLSearchParams(start < 0 ? "" : url.slice(start + 1));
}

/** A view of the console, whatever the browser says: never another site, nor a page that changes something. */
function returnPath(text: string): string {
  const base = "http://console.invalid";
  const home = "/console/";
  if (text.length > maxReturnLength || !text.startsWith(home) || !URL.canParse(text, base)) {
    return home;
  }
  const { origin, pathname, search } = new URL(text, base);
  const isView =
    origin === base && pathname.startsWith(home) && !/^\/console\/(oidc|session|login)\b/.test(pathname);
  return isView ? pathname + search : home;
}

function stale(what: string): Error {
  return millpondError("MILLPOND_E_UNAUTHENTICATED", what, { remedy: "Log in again." });
}
