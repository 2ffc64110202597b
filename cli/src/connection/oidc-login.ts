// SPDX-License-Identifier: Apache-2.0

// A login by the pool's OpenID provider (RFC 8252): a browser goes through the provider's pages and brings a code back to a
// port of this host. The controller exchanges the code, together with a verifier that has not left this process before, for
// the token.

import { spawn } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { createServer, type IncomingMessage, request as httpRequest, type ServerResponse } from "node:http";
import { request as httpsRequest } from "node:https";
import type { AddressInfo } from "node:net";
import { createInterface } from "node:readline";
import { errorCodeOf, millpondError } from "@millpond/api";
import { makePromptAgent, splitAddresses } from "@millpond/platform";
import { connect, isUnreachable } from "./connection.ts";

/** The token of a login, and its user. */
export interface OidcLogin {
  readonly token: string;
  readonly name: string;
  readonly role: string;
  /** Empty: all tenants. */
  readonly tenant: string;
  /** Unix seconds. */
  readonly expiresAt: number;
}

export interface OidcLoginOptions {
  /** Base URL; of several, separated by commas, the first that answers. */
  readonly controller: string;
  readonly ca: string | undefined;
  /** Whether to open the browser of this host, if there is one. */
  readonly opensBrowser: boolean;
}

/** How long the user has: the controller does not wait longer either. */
const patienceMs = 600_000;
const callMs = 20_000;
const connectMs = 10_000;

/**
 * Logs in by the OpenID provider of a pool, and writes instructions for the user to standard error.
 *
 * @throws MILLPOND_E_UNREACHABLE, MILLPOND_E_INVALID if the pool has no provider, MILLPOND_E_UNAUTHENTICATED with the refusal
 *   of the controller
 */
export async function logInByProvider({
  controller,
  ca,
  opensBrowser,
}: OidcLoginOptions): Promise<OidcLogin> {
  const at = { address: await firstThatAnswers(controller, ca), ca };
  const { url, label } = await findProvider(at);
  const verifier = randomBytes(32).toString("base64url");
  const state = randomBytes(32).toString("base64url");
  const challenge = createHash("sha256").update(verifier).digest("base64url");
  await using landing = await Landing.start(state);
  const link = `${url}/console/oidc/login?${new URLSearchParams({ port: String(landing.port), state, challenge }).toString()}`;
  const isOpen = opensBrowser && openBrowser(link);
  process.stderr.write(
    `${isOpen ? `The login by ${label} is in your browser. If it is not` : `To log in by ${label}`}, open\n\n  ${link}\n\n`,
  );
  const code = await landing.code(process.stdin.isTTY);
  const answer = await call(at, "token", { code, verifier });
  const { token, name, role, tenant, expiresAt } = answer;
  if (
    typeof token !== "string" ||
    typeof name !== "string" ||
    typeof role !== "string" ||
    typeof tenant !== "string" ||
    typeof expiresAt !== "number"
  ) {
    throw unusable(at.address);
  }
  return { token, name, role, tenant, expiresAt };
}

/** Finds the first controller that answers, with any response, to a call without a token. */
async function firstThatAnswers(controller: string, ca: string | undefined): Promise<string> {
  let failure: unknown;
  for (const address of splitAddresses(controller)) {
    try {
      await connect({ controller: address, token: "", ca, source: "the command line" }).pool.getVersion({});
      return address;
    } catch (error) {
      if (errorCodeOf(error) === "MILLPOND_E_UNAUTHENTICATED") return address;
      if (!isUnreachable(error)) throw error;
      failure ??= error;
    }
  }
  throw failure;
}

interface At {
  readonly address: string;
  readonly ca: string | undefined;
}

async function findProvider(at: At): Promise<{ readonly url: string; readonly label: string }> {
  const { url, label } = await call(at, "client");
  if (typeof url !== "string" || typeof label !== "string" || !URL.canParse(url)) throw unusable(at.address);
  return { url: url.replace(/\/+$/, ""), label };
}

/** Calls the controller's endpoints for logins. With a body the request is a POST. */
async function call(
  { address, ca }: At,
  name: string,
  body?: Readonly<Record<string, string>>,
): Promise<Readonly<Record<string, unknown>>> {
  const agent = makePromptAgent(address, { connectMs, ca });
  const request = (address.startsWith("https:") ? httpsRequest : httpRequest)(
    `${address.replace(/\/+$/, "")}/console/oidc/${name}`,
    {
      agent,
      method: body === undefined ? "GET" : "POST",
      headers: { "content-type": "application/json" },
      signal: AbortSignal.timeout(callMs),
    },
  );
  try {
    request.end(body === undefined ? undefined : JSON.stringify(body));
    const [response] = (await once(request, "response")) as [IncomingMessage];
    const chunks: Buffer[] = [];
    for await (const chunk of response) chunks.push(chunk as Buffer);
    return readAnswer(address, response.statusCode ?? 0, Buffer.concat(chunks).toString("utf8"));
  } catch (error) {
    if (errorCodeOf(error) !== undefined) throw error;
    const why = error instanceof Error ? error.message : String(error);
    throw millpondError("MILLPOND_E_UNREACHABLE", `the controller at ${address} does not answer: ${why}`, {
      cause: error,
    });
  } finally {
    agent.destroy();
  }
}

function readAnswer(address: string, status: number, text: string): Readonly<Record<string, unknown>> {
  let answer: unknown;
  try {
    answer = JSON.parse(text);
  } catch {
    // A controller without a provider, or of a release without such logins, serves another page there.
    throw millpondError("MILLPOND_E_INVALID", `the pool at ${address} has no logins by an OpenID provider`, {
      remedy: "Log in with a token, or ask its administrator: docs/oidc.md.",
    });
  }
  const members = typeof answer === "object" && answer !== null ? (answer as Record<string, unknown>) : {};
  if (status === 200) return members;
  throw refused(typeof members["message"] === "string" ? members["message"] : `status ${status}`);
}

function unusable(address: string): Error {
  return millpondError(
    "MILLPOND_E_VERSION",
    `the answer of the controller at ${address} to a login cannot be used: it may be of another release`,
  );
}

/** The controller's refusal already has a remedy and a code. */
function refused(message: string): Error {
  const [what = message] = message.split(/(?<=[^.])\. (?=[A-Z])/, 1);
  return millpondError(
    "MILLPOND_E_UNAUTHENTICATED",
    `the login is refused: ${what.replace(/\s*\[MILLPOND_E_\w+\]$/, "")}`,
    {
      remedy: "Log in again, or with a token. The log of the controller says more.",
    },
  );
}

/** The address to which the browser brings the code. */
class Landing implements AsyncDisposable {
  readonly #server = createServer((request, response) => this.#answer(request, response));
  readonly #state: string;
  readonly #code = Promise.withResolvers<string>();

  private constructor(state: string) {
    this.#state = state;
    this.#code.promise.catch(() => undefined);
  }

  static async start(state: string): Promise<Landing> {
    const landing = new Landing(state);
    landing.#server.listen(0, "127.0.0.1");
    await once(landing.#server, "listening");
    return landing;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  /**
   * Waits for the browser or, on a terminal, for the user to enter the address at which a browser on another host has ended
   * up.
   */
  async code(isTerminal: boolean): Promise<string> {
    const timer = setTimeout(() => {
      this.#code.reject(
        millpondError(
          "MILLPOND_E_UNAUTHENTICATED",
          `no login was completed within ${patienceMs / 60_000} minutes`,
          {
            remedy: "Run `millpond login --oidc` again.",
          },
        ),
      );
    }, patienceMs);
    const lines = isTerminal ? createInterface({ input: process.stdin, output: process.stderr }) : undefined;
    if (lines !== undefined) {
      const ask =
        "Where the browser is on another machine, copy the address at which it ends, and enter it here:\n";
      lines.setPrompt(ask);
      lines.prompt();
      lines.on("line", (line) => {
        if (line.trim() !== "" && !this.#take(line.trim())) {
          lines.setPrompt("That is not the address at which this login ends. Enter it here:\n");
          lines.prompt();
        }
      });
      lines.on("close", () =>
        this.#code.reject(millpondError("MILLPOND_E_INVALID", "the login was cancelled")),
      );
    }
    try {
      return await this.#code.promise;
    } finally {
      clearTimeout(timer);
      lines?.close();
    }
  }

  /** Accepts the address with an answer to this login. Others may call this port too, but do not know the state. */
  #take(address: string): boolean {
    const { searchParams } = URL.canParse(address, "http://127.0.0.1")
      ? new URL(address, "http://127.0.0.1")
      : new URL("http://x");
    const code = searchParams.get("code");
    const error = searchParams.get("error");
    if (searchParams.get("state") !== this.#state || (code === null && error === null)) return false;
    if (code === null) this.#code.reject(refused(error ?? ""));
    else this.#code.resolve(code);
    return true;
  }

  #answer({ url = "" }: IncomingMessage, response: ServerResponse): void {
    const isOurs = this.#take(url);
    const isRefused = isOurs && new URL(url, "http://127.0.0.1").searchParams.has("error");
    const text = !isOurs
      ? "This address is for a login of the millpond command line.\n"
      : isRefused
        ? "The login is refused: see the terminal. You can close this page.\n"
        : "The command line has your login: see the terminal. You can close this page.\n";
    response
      .writeHead(isOurs ? 200 : 400, {
        "content-type": "text/plain; charset=utf-8",
        "x-content-type-options": "nosniff",
        "cache-control": "no-store",
        connection: "close",
      })
      .end(text);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.close();
    this.#server.closeIdleConnections();
    await once(this.#server, "close");
  }
}

/**
 * Opens a page in the user's browser.
 *
 * @returns whether there is a browser to try
 */
function openBrowser(link: string): boolean {
  const { DISPLAY: display, WAYLAND_DISPLAY: wayland, BROWSER: browser } = process.env;
  if (!display && !wayland && !browser) return false;
  const child = spawn(browser || "xdg-open", [link], { stdio: "ignore", detached: true });
  // If no browser can be started, the user opens the page.
  child.on("error", () => undefined);
  child.unref();
  return true;
}
