// SPDX-License-Identifier: Apache-2.0

// The web console: static files below /console/, and the login of a browser. A login only authenticates calls: the page
// uses the same methods as every other client, with its token.

import type { IncomingMessage, OutgoingHttpHeaders, ServerResponse } from "node:http";
import { ConnectError } from "@connectrpc/connect";
import { codeToHttpStatus } from "@connectrpc/connect/protocol-connect";
import { millpondError } from "@millpond/api";
import { mayCall } from "../auth/access.ts";
import { requireToken } from "../auth/call-guard.ts";
import { type ActiveLogins, loginSeconds } from "../auth/active-logins.ts";
import type { StoredLogin, LoginSessions } from "../auth/login-sessions.ts";
import type { TokenVerifier } from "../auth/tokens.ts";
import type { Caller } from "../domain/caller.ts";
import type { LoginManager } from "../logins/login-manager.ts";
import type { ConsoleFile } from "./console-files.ts";
import type { OidcAnswer, OidcPages } from "./oidc-pages.ts";
import { drainBody, readBody } from "./request-body.ts";

/** A page of another origin cannot send this header without a preflight request, which is refused. */
export const consoleHeader = "millpond-console";

const sessionPath = "/console/session";
const oidcPath = "/console/oidc/";
const maxLoginBytes = 4096;

/** No other origin may frame our pages, and they load and call nothing elsewhere and run no script but their own. */
const securityHeaders: OutgoingHttpHeaders = {
  "content-security-policy": [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self'",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
  ].join("; "),
  "x-frame-options": "DENY",
  "x-content-type-options": "nosniff",
  "referrer-policy": "no-referrer",
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-resource-policy": "same-origin",
  "permissions-policy": "camera=(), microphone=(), geolocation=()",
};

export interface ConsoleOptions {
  readonly files: ReadonlyMap<string, ConsoleFile>;
  readonly sessions: LoginSessions;
  readonly active: ActiveLogins;
  readonly loginManager: LoginManager;
  readonly tokens: TokenVerifier;
  /** UUID of the pool, so that the cookies of several pools on one host do not collide. */
  readonly identity: string;
  /** Whether browsers connect by TLS. */
  readonly isSecure: boolean;
  /** Absent: logins by an OpenID provider are off. */
  readonly oidc?: OidcPages | undefined;
}

export class Console {
  readonly #options: ConsoleOptions;
  readonly #cookie: string;
  /** The cookie of a login in progress at an OpenID provider. */
  readonly #oidcCookie: string;

  constructor(options: ConsoleOptions) {
    this.#options = options;
    this.#cookie = `${options.isSecure ? "__Host-" : ""}millpond-${options.identity.slice(0, 8)}`;
    this.#oidcCookie = `${this.#cookie}-oidc`;
  }

  /**
   * Adds the token of the login to a call of our page. A call with a token of its own, or from another page, is left
   * unchanged.
   */
  admit(request: IncomingMessage): void {
    const { headers } = request;
    if (headers.cookie === undefined || headers.authorization !== undefined || !isOfOurPage(request)) {
      return;
    }
    const kept = this.#keptBy(headers.cookie);
    if (kept !== undefined) {
      headers.authorization = `Bearer ${kept.token}`;
      // Built from the received address, so that it cannot redirect elsewhere.
      request.headersDistinct["authorization"] = [headers.authorization];
    }
  }

  #keptBy(cookies: string | undefined): StoredLogin | undefined {
    const sealed = readCookie(cookies ?? "", this.#cookie);
    return sealed === undefined ? undefined : this.#options.sessions.unseal(sealed);
  }

  /** @returns Whether the path is the console's. */
  async answer(request: IncomingMessage, response: ServerResponse, path: string): Promise<boolean> {
    // As for every request, an unauthenticated client gets a new connection for each page.
    response.shouldKeepAlive &&= request.headers.authorization !== undefined;
    if (path === sessionPath) {
      await this.#answerSession(request, response);
    } else if (path.startsWith(oidcPath)) {
      await this.#answerOidc(request, response, path.slice(oidcPath.length));
    } else if (path === "/" || path === "/console") {
      send(response, 302, { location: "/console/" });
    } else if (path.startsWith("/console/")) {
      this.#answerFile(request, response, path.slice("/console/".length));
    } else {
      return false;
    }
    return true;
  }

  #answerFile(request: IncomingMessage, response: ServerResponse, name: string): void {
    if (request.method !== "GET" && request.method !== "HEAD") {
      send(response, 405, { allow: "GET, HEAD" });
      return;
    }
    const { files } = this.#options;
    // Views have addresses too, such as `nodes/a.example.org`; all of them belong to the one page.
    const isView = !name.split("/", 1)[0]?.includes(".");
    const file = files.get(name) ?? (isView ? files.get("index.html") : undefined);
    if (file === undefined) {
      const text =
        files.size === 0
          ? "The console was not built: run `npm run build`, then start the controller again.\n"
          : "There is no such file.\n";
      send(response, 404, { "content-type": "text/plain; charset=utf-8" }, Buffer.from(text));
      return;
    }
    const isGzip = /\bgzip\b/.test(request.headers["accept-encoding"] ?? "");
    const headers = {
      "content-type": file.type,
      "cache-control": file.isImmutable ? "public, max-age=31536000, immutable" : "no-cache",
      vary: "accept-encoding",
      ...(isGzip ? { "content-encoding": "gzip" } : {}),
    };
    send(response, 200, headers, isGzip ? file.gzipped : file.bytes);
  }

  async #answerOidc(request: IncomingMessage, response: ServerResponse, name: string): Promise<void> {
    const { oidc } = this.#options;
    if (oidc !== undefined && name === "token") {
      await this.#answerTerminal(request, response, oidc);
      return;
    }
    if (oidc !== undefined && name === "client" && request.method === "GET") {
      sendJson(response, 200, { label: oidc.label, url: oidc.url });
      return;
    }
    if (oidc === undefined || (name !== "login" && name !== "callback")) {
      send(
        response,
        404,
        { "content-type": "text/plain; charset=utf-8" },
        Buffer.from("There is no such page.\n"),
      );
      return;
    }
    // Every answer sets a cookie, so HEAD would differ from GET by more than the body.
    if (request.method !== "GET") {
      send(response, 405, { allow: "GET" });
      return;
    }
    const kept = readCookie(request.headers.cookie ?? "", this.#oidcCookie);
    const answer = await (name === "login" ? oidc.begin(request) : oidc.finish(request, kept));
    send(response, 302, { location: answer.location, "set-cookie": this.#oidcCookies(answer) });
  }

  /** Exchanges a code for the token of `millpond login --oidc`. */
  async #answerTerminal(request: IncomingMessage, response: ServerResponse, oidc: OidcPages): Promise<void> {
    try {
      if (request.method !== "POST") {
        send(response, 405, { allow: "POST" });
        return;
      }
      const { code, verifier } = parseTexts(await readBody(request, maxLoginBytes));
      if (code === undefined || verifier === undefined) {
        throw millpondError("MILLPOND_E_INVALID", "the request has no code, or no verifier");
      }
      const { token, expiresAt } = oidc.redeem(code, verifier);
      const caller = requireToken(`Bearer ${token}`, this.#options.tokens);
      sendJson(response, 200, { ...identityOf(caller), token, expiresAt });
    } catch (error) {
      await refuse(request, response, error);
    }
  }

  #oidcCookies({ kept, token }: OidcAnswer): string[] {
    const { sessions, oidc } = this.#options;
    const seconds = kept === "" ? 0 : (oidc?.cookieSeconds ?? 0);
    return [
      // Lax: the browser returns from the provider's site.
      this.#makeCookie(kept, seconds, { name: this.#oidcCookie, sameSite: "Lax" }),
      ...(token === undefined ? [] : [this.#makeCookie(sessions.seal({ token }), loginSeconds)]),
    ];
  }

  /** Answers with the caller and the provider; without a login, also with the reason why the last one was refused. */
  #answerWho(request: IncomingMessage, response: ServerResponse): void {
    const { oidc, tokens } = this.#options;
    const provider = oidc === undefined ? {} : { provider: oidc.label };
    let caller: Caller;
    try {
      caller = requireToken(request.headers.authorization, tokens);
    } catch (error) {
      const { code, rawMessage: message } = ConnectError.from(error);
      const trouble = oidc?.troubleOf(readCookie(request.headers.cookie ?? "", this.#oidcCookie));
      sendJson(
        response,
        codeToHttpStatus(code),
        { message, ...provider, trouble },
        trouble === undefined ? {} : { "set-cookie": this.#oidcCookies({ location: "", kept: "" }) },
      );
      return;
    }
    sendJson(response, 200, { ...identityOf(caller), ...provider });
  }

  async #answerSession(request: IncomingMessage, response: ServerResponse): Promise<void> {
    try {
      const body = await readBody(request, maxLoginBytes);
      if (!isOfOurPage(request)) {
        throw millpondError("MILLPOND_E_FORBIDDEN", "logins are possible only from the console's own page", {
          remedy: "Scripts call the API with a token.",
        });
      }
      switch (request.method) {
        case "GET":
          this.#answerWho(request, response);
          return;
        case "POST":
          await this.#logIn(response, body);
          return;
        case "DELETE":
          await this.#answerLogout(request, response);
          return;
        default:
          send(response, 405, { allow: "GET, POST, DELETE" });
      }
    } catch (error) {
      await refuse(request, response, error);
    }
  }

  /** @throws MILLPOND_E_INVALID, MILLPOND_E_UNAUTHENTICATED, MILLPOND_E_FORBIDDEN */
  async #logIn(response: ServerResponse, body: Uint8Array): Promise<void> {
    const { sessions, tokens, active, loginManager } = this.#options;
    const { token: given, code } = parseLogin(body);
    const token = code === undefined ? given : sessions.takeCode(code);
    if (token === undefined) {
      throw millpondError("MILLPOND_E_UNAUTHENTICATED", "the login link has been used, or has expired", {
        remedy: "Get another with `millpond console`, or log in with a token.",
      });
    }
    const caller = requireToken(`Bearer ${token}`, tokens);
    requirePerson(caller);
    const login = active.begin();
    await loginManager.open({ token, caller }, { id: login.id, kind: "console" });
    sendJson(response, 200, identityOf(caller), {
      "set-cookie": this.#makeCookie(sessions.seal({ token, login }), loginSeconds),
    });
  }

  /** The browser forgets the login even where it cannot be ended. */
  async #answerLogout(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const forget = { "set-cookie": this.#makeCookie("", 0) };
    try {
      await this.#logOut(request);
    } catch (error) {
      await refuse(request, response, error, forget);
      return;
    }
    send(response, 204, forget);
  }

  /** Ends the login of the cookie, if it has not ended: from then on a copy of the cookie is worthless. */
  async #logOut({ headers }: IncomingMessage): Promise<void> {
    const kept = this.#keptBy(headers.cookie);
    const caller = kept === undefined ? "unknown" : this.#options.tokens.verify(kept.token);
    if (kept === undefined || caller === "unknown" || caller === "expired") {
      return;
    }
    const id = kept.login?.id ?? caller.login?.id;
    if (id !== undefined) {
      await this.#options.loginManager.end({ token: kept.token, caller }, id);
    }
  }

  #makeCookie(
    value: string,
    maxAge: number,
    { name, sameSite }: { readonly name: string; readonly sameSite: "Strict" | "Lax" } = {
      name: this.#cookie,
      sameSite: "Strict",
    },
  ): string {
    const secure = this.#options.isSecure ? "; Secure" : "";
    return `${name}=${value}; Path=/; HttpOnly; SameSite=${sameSite}; Max-Age=${maxAge}${secure}`;
  }
}

/** @throws MILLPOND_E_FORBIDDEN for tokens of programs and agents */
function requirePerson({ role }: Caller): void {
  if (!mayCall(role, "user")) {
    throw millpondError(
      "MILLPOND_E_FORBIDDEN",
      `the console needs a token of the role user, this token has the role ${role}`,
    );
  }
}

/**
 * Whether a page of this origin sent the request. Browsers state the origin where it is trustworthy; elsewhere, and in
 * addition, a header proves it that no foreign form or link can send.
 */
function isOfOurPage({ headers }: IncomingMessage): boolean {
  const site = headers["sec-fetch-site"];
  const { origin, host } = headers;
  const isSame =
    site === undefined ? origin === undefined || hostOf(origin) === host : site === "same-origin";
  return headers[consoleHeader] !== undefined && isSame;
}

function hostOf(origin: string): string | undefined {
  return URL.canParse(origin) ? new URL(origin).host : undefined;
}

function readCookie(header: string, name: string): string | undefined {
  const found = header.split(/; */).find((each) => each.startsWith(`${name}=`));
  return found?.slice(name.length + 1);
}

/** @throws MILLPOND_E_INVALID */
function parseLogin(body: Uint8Array): { readonly token?: string; readonly code?: string } {
  const { code, token } = parseTexts(body);
  if (code !== undefined) {
    return { code };
  }
  if (token !== undefined) {
    return { token };
  }
  throw millpondError("MILLPOND_E_INVALID", "the login has neither a token nor a code");
}

/**
 * Reads the string members of a JSON object.
 *
 * @throws MILLPOND_E_INVALID
 */
function parseTexts(body: Uint8Array): Readonly<Record<string, string | undefined>> {
  let value: unknown;
  try {
    value = JSON.parse(Buffer.from(body).toString("utf8"));
  } catch (cause) {
    throw millpondError("MILLPOND_E_INVALID", "the login is not JSON", { cause });
  }
  const entries = typeof value === "object" && value !== null ? Object.entries(value) : [];
  return Object.fromEntries(
    entries.filter((entry): entry is [string, string] => typeof entry[1] === "string"),
  );
}

async function refuse(
  request: IncomingMessage,
  response: ServerResponse,
  error: unknown,
  headers: OutgoingHttpHeaders = {},
): Promise<void> {
  const failure = ConnectError.from(error);
  await drainBody(request, maxLoginBytes);
  sendJson(response, codeToHttpStatus(failure.code), { message: failure.rawMessage }, headers);
}

function identityOf({ name, role, tenant }: Caller): Pick<Caller, "name" | "role" | "tenant"> {
  return { name, role, tenant };
}

function sendJson(
  response: ServerResponse,
  status: number,
  value: unknown,
  headers: OutgoingHttpHeaders = {},
): void {
  send(
    response,
    status,
    { "content-type": "application/json; charset=utf-8", ...headers },
    Buffer.from(JSON.stringify(value)),
  );
}

function send(
  response: ServerResponse,
  status: number,
  headers: OutgoingHttpHeaders,
  bytes: Buffer = Buffer.alloc(0),
): void {
  response.writeHead(status, {
    "cache-control": "no-store",
    ...securityHeaders,
    ...headers,
    "content-length": bytes.byteLength,
  });
  response.end(bytes);
}
