// SPDX-License-Identifier: Apache-2.0

// The certificate of the webhooks: created by the operator itself, shared through a Secret, renewed long before it
// expires. The bundle that API servers trust also contains the previous authority, so that no replica is ever refused.

import type { V1Secret } from "@kubernetes/client-node";
import { type CertificatePair, makeAuthority, makeServerCertificate } from "@millpond/platform";
import { X509Certificate } from "node:crypto";
import { isIP } from "node:net";
import { asMergePatch, type Cluster, unlessStatus } from "../cluster/cluster.ts";

const dayMs = 86_400_000;

/** Lifetimes, in milliseconds. */
export interface CertificateTimes {
  /** Lifetime of the authority. Default ten years. */
  readonly authorityMs: number;
  /** Lifetime of the certificate. Default 90 days. */
  readonly serverMs: number;
}

export const defaultTimes: CertificateTimes = { authorityMs: 3650 * dayMs, serverMs: 90 * dayMs };

/** The content of the Secret, PEM. */
export interface ServingFiles {
  readonly authority: CertificatePair;
  /** Certificates of the authority and of the previous one. */
  readonly bundle: string;
  readonly server: CertificatePair;
}

/**
 * The files to use from now on: the same ones if they are good, and new ones if a third of their lifetime or less is
 * left, or if they are for other names. A pure function of its arguments except for the keys.
 *
 * @param before The files that replicas use until then: their authority remains trusted.
 */
export function renewFiles(
  files: ServingFiles | undefined,
  names: readonly string[],
  now: Date,
  times: CertificateTimes = defaultTimes,
  before: ServingFiles | undefined = files,
): ServingFiles {
  const from = new Date(now.getTime() - 5 * 60_000);
  const isAuthorityGood =
    files !== undefined && timeLeft(files.authority.certificate, now) > times.authorityMs / 3;
  const authority = isAuthorityGood
    ? files.authority
    : makeAuthority("Millpond webhooks", { from, to: new Date(now.getTime() + times.authorityMs) });
  const isServerGood =
    isAuthorityGood &&
    timeLeft(files.server.certificate, now) > times.serverMs / 3 &&
    names.every((name) => isFor(files.server.certificate, name));
  if (isServerGood) return files;
  const bundle = isAuthorityGood
    ? files.bundle
    : `${authority.certificate}${before?.authority.certificate ?? ""}`;
  return {
    authority,
    bundle,
    server: makeServerCertificate(authority, names, {
      from,
      to: new Date(now.getTime() + times.serverMs),
    }),
  };
}

function isFor(certificate: string, name: string): boolean {
  const parsed = new X509Certificate(certificate);
  return (isIP(name) === 0 ? parsed.checkHost(name) : parsed.checkIP(name)) !== undefined;
}

function timeLeft(certificate: string, now: Date): number {
  return new Date(new X509Certificate(certificate).validTo).getTime() - now.getTime();
}

export interface CertificateStoreOptions {
  readonly cluster: Cluster;
  readonly namespace: string;
  /** Name of the Secret. */
  readonly name: string;
  /** DNS names of the Service. */
  readonly serviceNames: readonly string[];
  readonly times?: CertificateTimes;
}

/** The certificate in its Secret, which all replicas share. */
export class CertificateStore {
  readonly #options: CertificateStoreOptions;
  /**
   * The content that was read last: a Secret that is deleted or overwritten is created again, and replicas that still use
   * this content are not refused meanwhile.
   */
  #last: ServingFiles | undefined;

  constructor(options: CertificateStoreOptions) {
    this.#options = options;
  }

  /** Reads the files, and renews them if necessary. Of several replicas that do so at the same time one wins. */
  async read(now = new Date()): Promise<ServingFiles> {
    const { cluster, namespace, name, serviceNames, times } = this.#options;
    for (;;) {
      const secret = await unlessStatus(cluster.core.readNamespacedSecret({ namespace, name }), 404);
      const files = parseFiles(secret);
      const renewed = renewFiles(files, serviceNames, now, times, this.#last ?? files);
      if (renewed === files) return (this.#last = files);
      const body = {
        metadata: { name, namespace, resourceVersion: secret?.metadata?.resourceVersion },
        type: "Opaque",
        stringData: formatFiles(renewed),
      };
      const written = await unlessStatus(
        secret === undefined
          ? cluster.core.createNamespacedSecret({ namespace, body: body as V1Secret })
          : cluster.core.patchNamespacedSecret({ namespace, name, body }, asMergePatch),
        409,
      );
      if (written !== undefined) return (this.#last = renewed);
    }
  }
}

const keys = {
  authorityCertificate: "ca.crt",
  authorityKey: "ca.key",
  bundle: "bundle.crt",
  certificate: "tls.crt",
  key: "tls.key",
} as const;

function formatFiles({ authority, bundle, server }: ServingFiles): Record<string, string> {
  return {
    [keys.authorityCertificate]: authority.certificate,
    [keys.authorityKey]: authority.key,
    [keys.bundle]: bundle,
    [keys.certificate]: server.certificate,
    [keys.key]: server.key,
  };
}

/** Undefined if a part is missing or not a certificate: then everything is created again. */
function parseFiles(secret: V1Secret | undefined): ServingFiles | undefined {
  const read = (key: string): string => Buffer.from(secret?.data?.[key] ?? "", "base64").toString("utf8");
  const files = {
    authority: { certificate: read(keys.authorityCertificate), key: read(keys.authorityKey) },
    bundle: read(keys.bundle),
    server: { certificate: read(keys.certificate), key: read(keys.key) },
  };
  const isWhole = [files.authority.certificate, files.bundle, files.server.certificate].every((text) =>
    text.startsWith("-----BEGIN CERTIFICATE-----"),
  );
  return isWhole && files.authority.key !== "" && files.server.key !== "" ? files : undefined;
}
