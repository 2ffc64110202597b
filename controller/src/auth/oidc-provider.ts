// SPDX-License-Identifier: Apache-2.0

// The OpenID provider: authorization code with PKCE, state and nonce. The library verifies the ID token's signature by the
// provider's published keys, its issuer, audience, times and nonce; what its user may do is decided here.

import { millpondError, quote } from "@millpond/api";
import type { Configuration, IDToken } from "openid-client";
import { isOidcName, maxOidcNameBytes } from "../domain/caller.ts";
import type { OidcConfig, OidcRule } from "./oidc-config.ts";
import type { OidcUser } from "./oidc-tokens.ts";

/** A login in progress: the values that the provider's answer must match. */
export interface OidcFlow {
  readonly state: string;
  readonly nonce: string;
  readonly verifier: string;
}

const timeoutSeconds = 10;

/** The provider's metadata hardly change, and anyone may begin a login. */
const metadataSeconds = 60;

const maxShownGroups = 10;

type Library = typeof import("openid-client");

/** Loaded on demand: most pools have no provider. */
async function loadClient(): Promise<Library> {
  return await import("openid-client");
}

export class OidcProvider {
  readonly #config: OidcConfig;
  readonly #redirectUri: () => string;
  readonly #now: () => number;
  #metadata: { readonly found: Promise<Configuration>; readonly until: number } | undefined;

  /**
   * @param redirectUri Where the provider sends the browser with its answer.
   * @param now Unix seconds.
   */
  constructor(config: OidcConfig, redirectUri: () => string, now: () => number) {
    this.#config = config;
    this.#redirectUri = redirectUri;
    this.#now = now;
  }

  /**
   * Begins a login.
   *
   * @returns The page of the provider for the browser, and the values that its answer must match.
   * @throws MILLPOND_E_UNREACHABLE
   */
  async begin(): Promise<{ readonly url: URL; readonly flow: OidcFlow }> {
    const client = await loadClient();
    const configuration = await this.#configure();
    const verifier = client.randomPKCECodeVerifier();
    const flow = { state: client.randomState(), nonce: client.randomNonce(), verifier };
    const url = client.buildAuthorizationUrl(configuration, {
      redirect_uri: this.#redirectUri(),
      scope: this.#config.scopes.join(" "),
      state: flow.state,
      nonce: flow.nonce,
      code_challenge: await client.calculatePKCECodeChallenge(verifier),
      code_challenge_method: "S256",
    });
    return { url, flow };
  }

  /**
   * Ends a login with the provider's answer.
   *
   * @param query The query with which the browser came back.
   * @throws MILLPOND_E_UNAUTHENTICATED, MILLPOND_E_FORBIDDEN, MILLPOND_E_UNREACHABLE
   */
  async finish(query: string, { state, nonce, verifier }: OidcFlow): Promise<OidcUser> {
    const client = await loadClient();
    const configuration = await this.#configure();
    const answer = new URL(this.#redirectUri());
    answer.search = query;
    const tokens = await client
      .authorizationCodeGrant(configuration, answer, {
        expectedState: state,
        expectedNonce: nonce,
        pkceCodeVerifier: verifier,
        idTokenExpected: true,
      })
      .catch((error: unknown) => {
        throw refuse(client, error, this.#config);
      });
    const claims = tokens.claims();
    if (claims === undefined) {
      throw unauthenticated("the OpenID provider sent no ID token");
    }
    return { name: nameOf(claims, this.#config), rule: findRule(claims, this.#config) };
  }

  /** A new client for each login, with no cached keys: after a rotation the provider's present keys are fetched. */
  async #configure(): Promise<Configuration> {
    const client = await loadClient();
    const { clientId, clientSecret, clockToleranceSeconds } = this.#config;
    const server = (await this.#discover()).serverMetadata();
    const methods = server.token_endpoint_auth_methods_supported ?? ["client_secret_basic"];
    const auth =
      clientSecret === ""
        ? client.None()
        : methods.includes("client_secret_basic")
          ? client.ClientSecretBasic(clientSecret)
          : client.ClientSecretPost(clientSecret);
    const metadata = {
      client_id: clientId,
      [client.clockSkew]: Math.round(this.#now() - Date.now() / 1000),
      [client.clockTolerance]: clockToleranceSeconds,
    };
    const configuration = new client.Configuration({ ...server }, clientId, metadata, auth);
    configuration.timeout = timeoutSeconds;
    client.enableNonRepudiationChecks(configuration);
    if (this.#config.issuer.protocol === "http:") {
      // The configuration refuses such issuers of other hosts.
      client.allowInsecureRequests(configuration);
    }
    return configuration;
  }

  async #discover(): Promise<Configuration> {
    const now = this.#now();
    if (this.#metadata === undefined || this.#metadata.until <= now) {
      this.#metadata = { found: this.#ask(), until: now + metadataSeconds };
      this.#metadata.found.catch(() => {
        this.#metadata = undefined;
      });
    }
    return await this.#metadata.found;
  }

  async #ask(): Promise<Configuration> {
    const client = await loadClient();
    const { issuer, clientId } = this.#config;
    try {
      return await client.discovery(issuer, clientId, undefined, client.None(), {
        timeout: timeoutSeconds,
        ...(issuer.protocol === "http:" && { execute: [client.allowInsecureRequests] }),
      });
    } catch (cause) {
      throw unreachable(cause, this.#config);
    }
  }
}

/** A name that is readable in the audit and belongs to one user only. */
function nameOf(claims: IDToken, { nameClaim }: OidcConfig): string {
  const name = claims[nameClaim];
  if (nameClaim === "email" && claims["email_verified"] !== true) {
    throw forbidden("the OpenID provider has not verified the address of this user");
  }
  if (typeof name !== "string" || !isOidcName(name)) {
    throw forbidden(
      `the ID token has no ${nameClaim} that can name a user: letters, digits and .@_+:|/- in at most ${maxOidcNameBytes} bytes`,
    );
  }
  return name;
}

function findRule(claims: IDToken, { rules, groupsClaim }: OidcConfig): OidcRule {
  const value = claims[groupsClaim];
  const groups = (Array.isArray(value) ? value : [value]).filter((each) => typeof each === "string");
  const rule = rules.find(({ group }) => group === "*" || groups.includes(group));
  if (rule === undefined) {
    const shown = groups.slice(0, maxShownGroups).map(quote).join(", ");
    throw forbidden(
      `no rule of this pool is for ${shown === "" ? "a user without groups" : `the groups ${shown}`}`,
    );
  }
  return rule;
}

/** The defect of an answer, without its content: anyone can send one. */
function refuse(client: Library, error: unknown, config: OidcConfig): Error {
  if (error instanceof client.AuthorizationResponseError || error instanceof client.ResponseBodyError) {
    const word = /^[a-z_]{1,40}$/.test(error.error) ? error.error : "an error";
    return unauthenticated(`the OpenID provider answers ${word}`, error);
  }
  const code = error instanceof client.ClientError ? error.code : undefined;
  switch (code) {
    case "OAUTH_JWT_TIMESTAMP_CHECK_FAILED":
      return unauthenticated(
        "the ID token has expired, or is not valid yet: the clocks of provider and controller may differ",
        error,
      );
    case "OAUTH_JWT_CLAIM_COMPARISON_FAILED":
      return unauthenticated("the ID token is not for this login of this pool", error);
    case "OAUTH_KEY_SELECTION_FAILED":
      return unauthenticated(
        "the ID token is not signed with a key that the OpenID provider publishes",
        error,
      );
    case "OAUTH_TIMEOUT":
      return unreachable(error, config);
    default:
      return code === undefined
        ? unreachable(error, config)
        : unauthenticated("the answer of the OpenID provider is not valid", error);
  }
}

function unreachable(cause: unknown, { issuer }: OidcConfig): Error {
  return millpondError(
    "MILLPOND_E_UNREACHABLE",
    `the OpenID provider ${issuer.href} gives no usable answer`,
    {
      remedy: "Try again, or log in with a token. The log of the controller says more.",
      cause,
    },
  );
}

function unauthenticated(what: string, cause?: unknown): Error {
  return millpondError("MILLPOND_E_UNAUTHENTICATED", what, {
    remedy: "Log in again. The log of the controller says more.",
    cause,
  });
}

function forbidden(what: string): Error {
  return millpondError("MILLPOND_E_FORBIDDEN", what, {
    remedy: "Ask an administrator for the rules: docs/oidc.md.",
  });
}
