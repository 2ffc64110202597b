// SPDX-License-Identifier: Apache-2.0

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { makeAuthority, makeServerCertificate } from "@millpond/platform";

/** Longer than any test runs. */
const dayMs = 86_400_000;

/** An authority whose certificates a test renews. */
export class TestAuthority {
  /** PEM. */
  readonly certificate: string;
  /** File with the authority's certificate. */
  readonly path: string;
  /** Files of the current certificate for loopback, and of its key. */
  readonly files: { readonly certificate: string; readonly key: string };
  readonly #authority = makeAuthority("test", validity());

  constructor(directory: string) {
    this.certificate = this.#authority.certificate;
    this.path = join(directory, "ca.crt");
    this.files = { certificate: join(directory, "server.crt"), key: join(directory, "server.key") };
    writeFileSync(this.path, this.certificate);
    this.renew();
  }

  /** Replaces the certificate and its key. */
  renew(): void {
    const pair = makeServerCertificate(this.#authority, ["127.0.0.1"], validity());
    writeFileSync(this.files.certificate, pair.certificate);
    writeFileSync(this.files.key, pair.key, { mode: 0o600 });
  }
}

function validity() {
  const now = Date.now();
  return { from: new Date(now - dayMs), to: new Date(now + dayMs) };
}
