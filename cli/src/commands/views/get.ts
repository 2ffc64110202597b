// SPDX-License-Identifier: Apache-2.0

import { setTimeout as delay } from "node:timers/promises";
import { exitStatus } from "../../command-table/command-table.ts";
import type { Values } from "../../command-line/command-values.ts";
import { openConnection } from "../../connection/connection.ts";
import {
  auditKind,
  claimKind,
  deviceKind,
  eventKind,
  type Kind,
  nodeKind,
  queueKind,
  sessionKind,
  tenantKind,
  tokenKind,
} from "../../output/kinds.ts";
import { renderObject, renderObjectLine } from "../../output/resources.ts";
import { layOut, type Widths } from "../../output/table.ts";

const watchIntervalMs = 1000;

export async function run(values: Values<"get">, [kind]: readonly string[]): Promise<number> {
  switch (kind) {
    case "nodes":
      return list(nodeKind, values);
    case "devices":
      return list(deviceKind, values);
    case "claims":
      return list(claimKind, values);
    case "queues":
      return list(queueKind, values);
    case "tenants":
      return list(tenantKind, values);
    case "sessions":
      return list(sessionKind, values);
    case "tokens":
      return list(tokenKind, values);
    case "audit":
      return list(auditKind, values);
    default:
      return list(eventKind, values);
  }
}

async function list<T>(kind: Kind<T>, values: Values<"get">): Promise<number> {
  const connection = openConnection(values);
  const printer = new Printer(kind, values);
  let items = await kind.list(connection, { all: values.all, after: 0n });
  if (!values.watch) {
    printer.printAll(items);
    return exitStatus.ok;
  }
  for (let after = 0n; ; ) {
    printer.printChanges(items);
    const last = items.at(-1);
    if (kind.isLog && last !== undefined) after = BigInt(kind.nameOf(last));
    await delay(watchIntervalMs);
    items = await kind.list(connection, { all: values.all, after });
  }
}

class Printer<T> {
  readonly #kind: Kind<T>;
  readonly #format: NonNullable<Values<"get">["output"]>;
  readonly #hasHeaders: boolean;
  readonly #shown = new Map<string, string>();
  #widths: Widths | undefined;

  constructor(kind: Kind<T>, values: Values<"get">) {
    this.#kind = kind;
    this.#format = values.output ?? "table";
    this.#hasHeaders = values.headers;
  }

  printAll(items: readonly T[]): void {
    const { title, toJson } = this.#kind;
    if (this.#format === "json") {
      process.stdout.write(renderObject(`${title}List`, { items: items.map(toJson) }));
    } else if (items.length === 0 && this.#format !== "name") {
      process.stderr.write(`no ${this.#kind.plural ?? `${this.#kind.word}s`}\n`);
    } else {
      this.#printRows(items);
    }
  }

  /** Prints the items that are new or differ from when they were printed last. */
  printChanges(items: readonly T[]): void {
    const { title, nameOf, toJson } = this.#kind;
    const changed = items.filter((item) => {
      const text = JSON.stringify(toJson(item));
      if (this.#shown.get(nameOf(item)) === text) return false;
      this.#shown.set(nameOf(item), text);
      return true;
    });
    if (this.#format === "json") {
      for (const item of changed) process.stdout.write(renderObjectLine(title, toJson(item)));
    } else if (changed.length > 0) {
      this.#printRows(changed);
    }
  }

  #printRows(items: readonly T[]): void {
    const { word, nameOf } = this.#kind;
    if (this.#format === "name") {
      for (const item of items) process.stdout.write(`${word}/${nameOf(item)}\n`);
      return;
    }
    const isWide = this.#format === "wide";
    const columns = this.#kind
      .columns({ nowSeconds: Math.floor(Date.now() / 1000), isWide })
      .filter((column) => isWide || !column.isWide);
    const isFirst = this.#widths === undefined;
    const { lines, widths } = layOut(columns, items, {
      headers: this.#hasHeaders && isFirst,
      widths: this.#widths,
    });
    this.#widths = widths;
    process.stdout.write(`${lines.join("\n")}\n`);
  }
}
