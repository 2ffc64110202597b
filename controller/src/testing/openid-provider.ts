// SPDX-License-Identifier: Apache-2.0

// A small OpenID provider over HTTP with keys of its own. It logs in every browser as the user of its test, and can answer as
// a hostile or a broken provider would.

import { createHash, createHmac, generateKeyPairSync, type KeyObject, randomBytes, sign } from "node:crypto";
import { once } from "node:events";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

type Members = Readonly<Record<string, unknown>>;

interface Key {
  readonly kid: string;
  readonly privateKey: KeyObject;
  readonly publicKey: KeyObject;
}

function makeKey(): Key {
  return {
    kid: randomBytes(6).toString("hex"),
    ...generateKeyPairSync("rsa", { modulusLength: 2048 }),
  };
}

/** Redirect URI, PKCE challenge and nonce for which a code was issued. */
interface Grant {
  readonly redirectUri: string;
  readonly challenge: string;
  readonly nonce: string;
}

export interface OpenIdProviderOptions {
  readonly clientId: string;
  readonly clientSecret: string;
  /** Unix seconds. */
  readonly now: () => number;
}

export class OpenIdProvider implements AsyncDisposable {
  readonly #server: Server;
  readonly #options: OpenIdProviderOptions;
  readonly #grants = new Map<string, Grant>();
  #key = makeKey();
  /** The claims of the next user. */
  claims: Members = { sub: "ann" };
  /** Changes the claims of the next tokens, for any user. */
  forgeClaims: (claims: Members) => Members = (claims) => claims;
  /** Replaces the signed token. */
  forgeToken: (
    claims: Members,
    key: { readonly kid: string; readonly publicKey: KeyObject },
  ) => string | undefined = () => undefined;
  /** Error of the authorization endpoint instead of a code; empty: none. */
  error = "";

  private constructor(server: Server, options: OpenIdProviderOptions) {
    this.#server = server;
    this.#options = options;
  }

  static async start(options: OpenIdProviderOptions): Promise<OpenIdProvider> {
    const server = createServer((request, response) => {
      provider.#answer(request, response).catch((error: unknown) => response.destroy(error as Error));
    });
    const provider = new OpenIdProvider(server, options);
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    return provider;
  }

  get issuer(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** From now on another key signs, and only that one is published. */
  rotateKey(): void {
    this.#key = makeKey();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, "close");
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { pathname, searchParams } = new URL(request.url ?? "", this.issuer);
    switch (pathname) {
      case "/.well-known/openid-configuration":
        return sendJson(response, 200, {
          issuer: this.issuer,
          authorization_endpoint: `${this.issuer}/authorize`,
          token_endpoint: `${this.issuer}/token`,
          jwks_uri: `${this.issuer}/keys`,
          id_token_signing_alg_values_supported: ["RS256"],
          response_types_supported: ["code"],
          subject_types_supported: ["public"],
        });
      case "/keys": {
        const { kid, publicKey } = this.#key;
        const jwk = { ...publicKey.export({ format: "jwk" }), kid, use: "sig", alg: "RS256" };
        return sendJson(response, 200, { keys: [jwk] });
      }
      case "/authorize":
        return this.#authorize(searchParams, response);
      case "/token": {
        const chunks: Buffer[] = [];
        for await (const chunk of request) chunks.push(chunk as Buffer);
        const form = new URLSearchParams(Buffer.concat(chunks).toString("utf8"));
        return this.#grant(form, request.headers.authorization ?? "", response);
      }
      default:
        sendJson(response, 404, {});
    }
  }

  #authorize(asked: URLSearchParams, response: ServerResponse): void {
    const redirectUri = asked.get("redirect_uri") ?? "";
    const answer = new URL(redirectUri);
    answer.searchParams.set("state", asked.get("state") ?? "");
    if (this.error === "") {
      const isWhole =
        asked.get("client_id") === this.#options.clientId &&
        asked.get("response_type") === "code" &&
        asked.get("code_challenge_method") === "S256";
      if (!isWhole) return sendJson(response, 400, { error: "invalid_request" });
      const code = randomBytes(16).toString("hex");
      this.#grants.set(code, {
        redirectUri,
        challenge: asked.get("code_challenge") ?? "",
        nonce: asked.get("nonce") ?? "",
      });
      answer.searchParams.set("code", code);
    } else {
      answer.searchParams.set("error", this.error);
      answer.searchParams.set("error_description", "<img src=x onerror=alert(1)>");
    }
    response.writeHead(302, { location: answer.href }).end();
  }

  #grant(form: URLSearchParams, authorization: string, response: ServerResponse): void {
    const { clientId, clientSecret, now } = this.#options;
    const expected = Buffer.from(`${clientId}:${clientSecret}`).toString("base64");
    const code = form.get("code") ?? "";
    const grant = this.#grants.get(code);
    this.#grants.delete(code);
    const challenge = createHash("sha256")
      .update(form.get("code_verifier") ?? "")
      .digest("base64url");
    if (authorization !== `Basic ${expected}`) return sendJson(response, 401, { error: "invalid_client" });
    if (grant?.redirectUri !== form.get("redirect_uri") || grant.challenge !== challenge) {
      return sendJson(response, 400, { error: "invalid_grant" });
    }
    const claims = this.forgeClaims({
      iss: this.issuer,
      aud: clientId,
      iat: now(),
      exp: now() + 300,
      nonce: grant.nonce,
      ...this.claims,
    });
    const { kid, privateKey } = this.#key;
    sendJson(response, 200, {
      access_token: randomBytes(16).toString("hex"),
      token_type: "Bearer",
      id_token:
        this.forgeToken(claims, this.#key) ??
        makeJwt({ alg: "RS256", kid }, claims, (text) => sign("sha256", Buffer.from(text), privateKey)),
    });
  }
}

/** Builds a token as providers do, and as forgers do. */
export function makeJwt(header: Members, claims: Members, signText: (text: string) => Buffer): string {
  const text = [header, claims]
    .map((part) => Buffer.from(JSON.stringify(part)).toString("base64url"))
    .join(".");
  return `${text}.${signText(text).toString("base64url")}`;
}

/**
 * Signs with a text that everyone knows, such as a public key: a verifier that trusts the algorithm named in the token
 * accepts it.
 */
export function hmacOf(secret: string): (text: string) => Buffer {
  return (text) => createHmac("sha256", secret).update(text).digest();
}

function sendJson(response: ServerResponse, status: number, value: Members): void {
  response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(value));
}
