// SPDX-License-Identifier: Apache-2.0

// The tenancies of all namespaces of a cluster, from a copy of its namespaces that is kept current. The copy may be
// older than a pod's request, so a namespace that it lacks is read from the server, and so is every namespace before a
// claim is created.

import type { V1Namespace } from "@kubernetes/client-node";
import { millpondError } from "@millpond/api";
import type { ResourceNames } from "../request/resource-names.ts";
import { type Tenancy, tenancyOf } from "../request/tenancy.ts";

export interface TenanciesOptions {
  readonly names: ResourceNames;
  /** The namespaces of the copy. */
  readonly known: () => Iterable<V1Namespace>;
  /** Reads one from the server; undefined: it does not exist. */
  readonly read: (namespace: string) => Promise<V1Namespace | undefined>;
}

interface Read {
  readonly atMs: number;
  readonly namespace: Promise<V1Namespace | undefined>;
}

const freshMs = 500;

export class Tenancies {
  readonly #options: TenanciesOptions;
  /** Recent reads, by name. */
  readonly #reads = new Map<string, Read>();

  constructor(options: TenanciesOptions) {
    this.#options = options;
  }

  /**
   * From the copy, or from the server if the copy lacks the namespace.
   *
   * @throws MILLPOND_E_FORBIDDEN, MILLPOND_E_NOT_FOUND
   */
  async find(namespace: string): Promise<Tenancy> {
    for (const each of this.#options.known()) {
      if (each.metadata?.name === namespace) return this.#tenancyOf(each);
    }
    return await this.read(namespace);
  }

  /**
   * From the server, at most half a second old: hundreds of pods that are created at the same time share the reads of
   * their namespace.
   *
   * @throws MILLPOND_E_FORBIDDEN, MILLPOND_E_NOT_FOUND
   */
  async read(namespace: string): Promise<Tenancy> {
    const found = await this.#recent(namespace);
    if (found === undefined) {
      throw millpondError("MILLPOND_E_NOT_FOUND", `there is no namespace ${namespace}`, {
        remedy: "Create it first.",
      });
    }
    return this.#tenancyOf(found);
  }

  async #recent(name: string): Promise<V1Namespace | undefined> {
    const nowMs = performance.now();
    const last = this.#reads.get(name);
    if (last !== undefined && nowMs - last.atMs < freshMs) return await last.namespace;
    for (const [each, { atMs }] of this.#reads) if (nowMs - atMs >= freshMs) this.#reads.delete(each);
    const read = { atMs: nowMs, namespace: this.#options.read(name) };
    this.#reads.set(name, read);
    const forget = (): void => {
      if (this.#reads.get(name) === read) this.#reads.delete(name);
    };
    // A missing namespace may be created at any moment.
    read.namespace.then((found) => found ?? forget(), forget);
    return await read.namespace;
  }

  #tenancyOf(namespace: V1Namespace): Tenancy {
    return tenancyOf(this.#options.names, namespace, this.#options.known());
  }
}
