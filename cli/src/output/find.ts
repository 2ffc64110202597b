// SPDX-License-Identifier: Apache-2.0

import { errorCodeOf, millpondError, type Node, quote } from "@millpond/api";
import type { Connection } from "../connection/connection.ts";
import type { Kind } from "./kinds.ts";

/**
 * Finds an object by its name or by a unique prefix of it.
 *
 * @param alias an equivalent name, such as the UUID of a device
 * @throws MILLPOND_E_NOT_FOUND, MILLPOND_E_INVALID when several names have that prefix
 */
export async function findOne<T>(
  kind: Kind<T>,
  connection: Connection,
  name: string,
  alias: (item: T) => string = kind.nameOf,
): Promise<T> {
  const items = await kind.list(connection, { all: true, after: 0n });
  const exact = items.find((item) => kind.nameOf(item) === name || alias(item) === name);
  if (exact !== undefined) return exact;
  const similar = items.filter((item) => kind.nameOf(item).startsWith(name) || alias(item).startsWith(name));
  const [only, second] = similar;
  if (only !== undefined && second === undefined) return only;
  if (only === undefined) {
    throw millpondError("MILLPOND_E_NOT_FOUND", `there is no ${kind.word} ${quote(name)}`, {
      remedy: `List them with \`millpond get ${kind.word}s\`.`,
    });
  }
  const names = similar.slice(0, 4).map(kind.nameOf).join(", ");
  throw millpondError(
    "MILLPOND_E_INVALID",
    `${quote(name)} is a prefix of ${similar.length} names: ${names}`,
    {
      remedy: "Give more of the name.",
    },
  );
}

/** Returns the node of an allocation; undefined if the node has been removed since, and for the token of a program. */
export async function findNode(
  { pool }: Connection,
  name: string,
  signal?: AbortSignal,
): Promise<Node | undefined> {
  try {
    return (await pool.getNode({ name }, signal === undefined ? {} : { signal })).node;
  } catch (error) {
    const code = errorCodeOf(error);
    if (code === "MILLPOND_E_NOT_FOUND" || code === "MILLPOND_E_FORBIDDEN") return undefined;
    throw error;
  }
}
