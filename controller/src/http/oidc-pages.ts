// SPDX-License-Identifier: Apache-2.0

// The two addresses of a login by an OpenID provider: one redirects the browser to the provider, and the browser
// returns to the other. In between, a sealed cookie holds the values to be matched, so any controller of the pool can
// complete the login.

import type { IncomingMessage } from "node:http";
import { ConnectError } from "@connectrpc/connect";
import { millpondError } from "@millpond/api";
import type { Logger } from "pino";
import type { KeyRing } from "../auth/key-ring.ts";
import { loginSeconds } from "../auth/active-logins.ts";
import type { OidcConfig } from "../auth/oidc-config.ts";
import { type OidcFlow, OidcProvider } from "../auth/oidc-provider.ts";
import type { OidcTokens } from "../auth/oidc-tokens.ts";
import type { LoginKind } from "../domain/records.ts";
import { ValueSealer } from "../auth/value-sealer.ts";
import type { LoginManager } from "../logins/login-manager.ts";
import { UsedCodes } from "../auth/used-codes.ts";
import {
  addressOf,
  readTerminal,
  type Terminal,
  TerminalCodes,
  type TerminalLogin,
} from "./oidc-terminal.ts";

/** How much time a user has at the provider. */
const flowSeconds = 600;

/** The most answers of the provider that are verified concurrently. */
const maxFinishing = 32;

/** Longer places to return to are dropped. */
const maxReturnLength = 512;

/** The cookie's content: a login in progress, or the reason why the last one failed. */
type Kept =
  | {
      readonly flow: OidcFlow;
      readonly to: string;
      /** The command line for which the browser logs in. */
      readonly terminal?: Terminal | undefined;
    }
  | { readonly trouble: string };

export interface OidcPagesOptions {
  readonly config: OidcConfig;
  readonly keys: KeyRing;
  readonly tokens: OidcTokens;
  readonly loginManager: LoginManager;
  /** Base address of the console when the configuration has none. */
  readonly url: () => string;
  /** Unix seconds. */
  readonly now: () => number;
  readonly log: Logger;
}

/** The answer to the browser, which always leads to another page. */
export interface OidcAnswer {
  readonly location: string;
  /** The value of the cookie for logins in progress; empty: removes it. */
  readonly kept: string;
  /** The token of the login that has succeeded. */
  readonly token?: string;
}

export class OidcPages {
  readonly #options: OidcPagesOptions;
  readonly #provider: OidcProvider;
  readonly #kept: ValueSealer<Kept>;
  readonly #codes: TerminalCodes;
  /** The states of completed logins: each answer is accepted once. */
  readonly #ended = new UsedCodes();
  #finishing = 0;

  constructor(options: OidcPagesOptions) {
    const { config, keys, now } = options;
    this.#options = options;
    this.#provider = new OidcProvider(config, () => `${this.url}/console/oidc/callback`, now);
    this.#codes = new TerminalCodes(keys, now);
    this.#kept = new ValueSealer({ keys, now, purpose: "oidc flows", lifetimeSeconds: flowSeconds });
  }

  get label(): string {
    return this.#options.config.label;
  }

  /** Base address of the console, as browsers use it. */
  get url(): string {
    const { config, url } = this.#options;
    return config.url === "" ? url() : config.url;
  }

  /**
   * Exchanges the code that a browser brought to a command for the token of the login.
   *
   * @throws MILLPOND_E_UNAUTHENTICATED
   */
  redeem(code: string, verifier: string): TerminalLogin {
    return this.#codes.redeem(code, verifier);
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
    let terminal: Terminal | undefined;
    try {
      // Another site could begin a login to see its user come back logged in.
      const site = request.headers["sec-fetch-site"];
      if (site !== undefined && site !== "same-origin" && site !== "none") {
        throw millpondError("MILLPOND_E_FORBIDDEN", "logins can be started only from the console's own page");
      }
      const query = queryOf(request);
      terminal = readTerminal(query);
      const { url, flow } = await this.#provider.begin();
      const to = returnPath(query.get("to") ?? "");
      return { location: url.href, kept: this.#kept.seal({ flow, to, terminal }) };
    } catch (error) {
      return this.#fail(error, terminal);
    }
  }

  /** Handles the provider's answer, which the browser brings. */
  async finish(request: IncomingMessage, kept: string | undefined): Promise<OidcAnswer> {
    const { tokens, now, log } = this.#options;
    let terminal: Terminal | undefined;
    try {
      const begun = kept === undefined ? undefined : this.#kept.unseal(kept);
      if (begun === undefined || !("flow" in begun)) {
        throw stale("this browser has started no login in the last ten minutes");
      }
      const query = queryOf(request);
      if (query.get("state") !== begun.flow.state) {
        throw stale("the answer is for another login, such as one of another tab");
      }
      ({ terminal } = begun);
      if (!this.#ended.add(begun.flow.state)) {
        throw stale("this login was already completed");
      }
      const user = await this.#verify(query, begun.flow);
      log.info(
        {
          user: user.name,
          group: user.rule.group,
          role: user.rule.role,
          by: terminal === undefined ? "console" : "command line",
        },
        "logged in by OpenID Connect",
      );
      const token = tokens.make(user);
      await this.#record(token, terminal === undefined ? "console" : "command-line");
      if (terminal === undefined) {
        return { location: begun.to, kept: "", token };
      }
      const code = this.#codes.make({ token, expiresAt: now() + loginSeconds }, terminal);
      return { location: addressOf(terminal, { code }), kept: "" };
    } catch (error) {
      return this.#fail(error, terminal);
    }
  }

  async #record(token: string, kind: LoginKind): Promise<void> {
    const { tokens, loginManager } = this.#options;
    const caller = tokens.verify(token);
    if (caller === undefined || caller === "expired" || caller.login === undefined) {
      throw stale("the rules of the pool have changed meanwhile");
    }
    await loginManager.open({ token, caller }, { id: caller.login.id, kind });
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

  #fail(error: unknown, terminal: Terminal | undefined): OidcAnswer {
    const failure = ConnectError.from(error);
    this.#options.log.warn({ err: error }, "a login by OpenID Connect is refused");
    if (terminal !== undefined) {
      return { location: addressOf(terminal, { error: failure.rawMessage }), kept: "" };
    }
    return { location: "/console/login", kept: this.#kept.seal({ trouble: failure.rawMessage }) };
  }
}

function queryOf({ url = "" }: IncomingMessage): URLSearchParams {
  const start = url.indexOf("?");
  return new URLSearchParams(start < 0 ? "" : url.slice(start + 1));
}

/**
 * The view to return to, restricted to views of the console: never another site, nor an address that changes something.
 */
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
