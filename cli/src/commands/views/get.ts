// SPDX-License-Identifier: Apache-2.0

import { setTimeout as delay } from "node:timers/promises";
import { millpondError, quote } from "@millpond/api";
import { WaitingDisplay } from "../../claim/waiting-display.ts";
import { exitStatus } from "../../command-table/command-table.ts";
import type { Values } from "../../command-line/command-values.ts";
import { type Connection, isUnreachable, openConnection } from "../../connection/connection.ts";
import { findOne } from "../../output/find.ts";
import {
  auditKind,
  claimKind,
  deviceKind,
  eventKind,
  type Kind,
  loginKind,
  nodeKind,
  queueKind,
  sessionKind,
  tenantKind,
  tokenKind,
} from "../../output/kinds.ts";
import { ListPrinter } from "../../output/list-printer.ts";
import { parseConditions, parseOrder, parseSelector, requireMember } from "../../output/selection.ts";

const watchIntervalMs = 1000;

export async function run(values: Values<"get">, [kind, name]: readonly string[]): Promise<number> {
  switch (kind) {
    case "nodes":
      return list(nodeKind, name, values);
    case "devices":
      return list(deviceKind, name, values);
    case "claims":
      return list(claimKind, name, values);
    case "queues":
      return list(queueKind, name, values);
    case "tenants":
      return list(tenantKind, name, values);
    case "sessions":
      return list(sessionKind, name, values);
    case "tokens":
      return list(tokenKind, name, values);
    case "logins":
      return list(loginKind, name, values);
    case "audit":
      return list(auditKind, name, values);
    default:
      return list(eventKind, name, values);
  }
}

async function list<T>(kind: Kind<T>, name: string | undefined, values: Values<"get">): Promise<number> {
  const after = firstId(kind, values.after);
  const select = selectionOf(kind, values);
  const printer = new ListPrinter(kind, {
    format: values.output ?? "table",
    hasHeaders: values.headers,
    isAbsolute: values.absolute,
  });
  const connection = openConnection(values);
  if (name !== undefined) {
    const found = await findOne(kind, connection, name);
    if (!values.watch) {
      printer.printOne(found);
      return exitStatus.ok;
    }
    const isFound = (item: T): boolean => kind.nameOf(item) === kind.nameOf(found);
    return watch(kind, connection, printer, { ...values, after, select: (items) => items.filter(isFound) });
  }
  if (values.watch) return watch(kind, connection, printer, { ...values, after, select });
  printer.printAll(select(await kind.list(connection, { all: values.all, after })));
  return exitStatus.ok;
}

/** @throws MILLPOND_E_INVALID */
function firstId<T>({ isLog, word }: Kind<T>, text: string | undefined): bigint {
  if (text === undefined) return 0n;
  if (isLog !== true) {
    throw millpondError("MILLPOND_E_INVALID", `--after is for events and the audit, and a ${word} has no id`);
  }
  if (!/^\d{1,18}$/.test(text)) {
    throw millpondError("MILLPOND_E_INVALID", `--after: ${quote(text)} is not the id of a record`);
  }
  return BigInt(text);
}

/**
 * Returns the selection of the objects to show, and their order.
 *
 * @throws MILLPOND_E_INVALID
 */
function selectionOf<T>(
  { toJson, blank }: Kind<T>,
  { selector, where, sortBy }: Values<"get">,
): (items: readonly T[]) => readonly T[] {
  const hasLabels = selector === undefined ? undefined : parseSelector(selector);
  const conditions = where === undefined ? [] : parseConditions(where);
  const order = sortBy === undefined ? undefined : parseOrder(sortBy);
  // Checked once, without the objects: a misspelt condition is refused in an empty pool, too.
  const members = toJson(blank());
  if (hasLabels !== undefined) requireMember(members, "labels", "--selector");
  for (const { path } of conditions) requireMember(members, path, "--where");
  if (order !== undefined) requireMember(members, order.path, "--sort-by");
  return (items) => {
    const objects = items.map((item) => ({ item, json: toJson(item) }));
    const selected = objects.filter(
      ({ json }) => (hasLabels?.(json) ?? true) && conditions.every(({ test }) => test(json)),
    );
    return (order === undefined ? selected : selected.toSorted((a, b) => order.compare(a.json, b.json))).map(
      ({ item }) => item,
    );
  };
}

interface WatchOptions<T> {
  readonly all: boolean;
  readonly after: bigint;
  readonly select: (items: readonly T[]) => readonly T[];
}

/** Prints changes until it is interrupted. Waits while no controller answers. */
async function watch<T>(
  kind: Kind<T>,
  connection: Connection,
  printer: ListPrinter<T>,
  { all, after, select }: WatchOptions<T>,
): Promise<never> {
  let last = after;
  let items = await kind.list(connection, { all, after: last });
  for (;;) {
    const names = new Set(items.map(kind.nameOf));
    printer.printChanges(items, select(items));
    if (kind.isLog === true) {
      const newest = items.at(-1);
      if (newest !== undefined) last = BigInt(kind.nameOf(newest));
    } else {
      for (const name of printer.shownBeside(names)) {
        printer.printEnd(name, await patiently(connection, async () => kind.afterEnd?.(connection, name)));
      }
    }
    await delay(watchIntervalMs);
    items = await patiently(connection, () => kind.list(connection, { all, after: last }));
  }
}

/** Repeats the call while the controller does not answer, and shows that on standard error. */
async function patiently<R>(connection: Connection, ask: () => Promise<R>): Promise<R> {
  using display = new WaitingDisplay();
  for (;;) {
    try {
      const answer = await ask();
      display.end("the controller answers again");
      return answer;
    } catch (error) {
      if (!isUnreachable(error)) throw error;
    }
    display.show(`waiting for the controller at ${connection.controller}, which does not answer`);
    await delay(watchIntervalMs);
  }
}
