// SPDX-License-Identifier: Apache-2.0

import { type Connection, connect } from "../src/connection/connection.ts";
import type { Endpoint } from "../src/connection/endpoint.ts";
import { claimKind, deviceKind, type Kind, nodeKind, sessionKind } from "../src/output/kinds.ts";
import { renderObject } from "../src/output/resources.ts";

/** Objects of a pool, as `millpond get ... -o json` shows them. Tests that ask often do so without starting a process each time. */
export class Lists {
  readonly #connection: Connection;

  constructor(at: Omit<Endpoint, "source">) {
    this.#connection = connect({ ...at, source: "the test" });
  }

  nodes<T>(): Promise<readonly T[]> {
    return this.#list(nodeKind);
  }

  devices<T>(): Promise<readonly T[]> {
    return this.#list(deviceKind);
  }

  claims<T>(): Promise<readonly T[]> {
    return this.#list(claimKind);
  }

  sessions<T>(): Promise<readonly T[]> {
    return this.#list(sessionKind);
  }

  async #list<I, T>(kind: Kind<I>): Promise<readonly T[]> {
    const items = await kind.list(this.#connection, { all: false, after: 0n });
    const text = renderObject(`${kind.title}List`, { items: items.map(kind.toJson) });
    return (JSON.parse(text) as { readonly items: readonly T[] }).items;
  }
}
