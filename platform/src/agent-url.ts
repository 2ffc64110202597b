// SPDX-License-Identifier: Apache-2.0

// The address of an agent, and how to authenticate it: an `https:` URL of an agent ends with the SHA-256 of its only valid
// certificate, `https://node-7:7171#sha256=<64 digits>`. The agent creates that certificate, and the controller passes the
// fingerprint on.

import { createHash, timingSafeEqual, X509Certificate } from "node:crypto";
import type { Agent as HttpAgent } from "node:http";
import { Agent } from "node:https";
import type { Duplex } from "node:stream";
import { connect, type ConnectionOptions } from "node:tls";
import { millpondError } from "@millpond/api";
import { makePromptAgent } from "./outgoing/prompt-agent.ts";

/** An agent's URL, parsed. */
export interface AgentAddress {
  /** Without the fingerprint. */
  readonly baseUrl: string;
  /** 64 hexadecimal digits; undefined if the agent uses plain HTTP, on loopback. */
  readonly fingerprint: string | undefined;
}

const form = /^(https?:\/\/[^#]*?)\/*(?:#sha256=([0-9a-f]{64}))?$/i;

/**
 * Takes an agent's URL apart.
 *
 * @throws MILLPOND_E_INVALID
 */
export function parseAgentUrl(text: string): AgentAddress {
  const match = form.exec(text);
  const baseUrl = match?.[1] ?? "";
  const fingerprint = match?.[2];
  const url = URL.canParse(baseUrl) ? new URL(baseUrl) : undefined;
  const isPlain =
    url !== undefined && url.username === "" && url.password === "" && url.search === "" && url.hash === "";
  if (!isPlain || (url.protocol === "https:") !== (fingerprint !== undefined) || text.length > 400) {
    throw millpondError(
      "MILLPOND_E_INVALID",
      `the agent URL "${text.slice(0, 200)}" is neither of the form http://host:port nor https://host:port#sha256=…`,
    );
  }
  return { baseUrl, fingerprint };
}

/** The URL of a server with this certificate. */
export function agentUrl(baseUrl: string, certificate: string): string {
  return `${baseUrl}#sha256=${sha256(new X509Certificate(certificate).raw).toString("hex")}`;
}

/** Options of a Connect transport that reaches only this agent. */
export function agentTransportOptions(url: string): {
  readonly baseUrl: string;
  readonly httpVersion: "1.1";
  readonly nodeOptions: { readonly agent: HttpAgent };
} {
  const { baseUrl, fingerprint } = parseAgentUrl(url);
  const agent = fingerprint === undefined ? makePromptAgent(baseUrl) : new PinnedAgent(baseUrl, fingerprint);
  return { baseUrl, httpVersion: "1.1", nodeOptions: { agent } };
}

/**
 * Connects to the server with one certificate, pinned by its fingerprint; issuer, validity and names are not checked.
 */
class PinnedAgent extends Agent {
  readonly #server: string;
  readonly #fingerprint: Buffer;

  constructor(server: string, fingerprint: string) {
    super({ maxCachedSessions: 0 });
    this.#server = server;
    this.#fingerprint = Buffer.from(fingerprint, "hex");
  }

  /** Hands over the connection only after the certificate has been checked, so that nothing is sent to another server. */
  override createConnection(
    options: ConnectionOptions,
    callback?: (error: Error | null, socket: Duplex) => void,
  ): undefined {
    const socket = connect({ ...options, rejectUnauthorized: false });
    const done = (error: Error | null): void => {
      socket.removeAllListeners("error");
      callback?.(error, socket);
    };
    socket.once("error", done);
    socket.once("secureConnect", () => {
      const { raw } = socket.getPeerCertificate();
      if (timingSafeEqual(sha256(raw), this.#fingerprint)) {
        done(null);
        return;
      }
      socket.destroy();
      done(
        millpondError(
          "MILLPOND_E_TLS",
          `the agent at ${this.#server} is not trusted: its certificate is not the one that the controller knows it by`,
          { remedy: "Another process serves its address, or it was restarted: check again." },
        ),
      );
    });
    return undefined;
  }
}

function sha256(bytes: Uint8Array): Buffer {
  return createHash("sha256").update(bytes).digest();
}
