// SPDX-License-Identifier: Apache-2.0

// The patches of an API server: RFC 7396, RFC 6902, and strategic merge patches as far as pod statuses need them.

export type Json = Readonly<Record<string, unknown>>;

/** A test of a JSON patch failed, or a path of it does not exist. */
export class PatchRefused extends Error {}

/** Lists that a strategic patch merges, and the member by which it finds their items. */
const listKeys: Readonly<Record<string, string>> = {
  conditions: "type",
  containerStatuses: "name",
  initContainerStatuses: "name",
};

/**
 * @param contentType Content type of the request.
 * @throws PatchRefused
 */
export function applyPatch(contentType: string, object: Json, patch: unknown): Json {
  if (contentType.startsWith("application/json-patch+json")) return applyOperations(object, patch);
  return merge(object, patch, contentType.startsWith("application/strategic-merge-patch+json")) as Json;
}

function isObject(value: unknown): value is Json {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function merge(object: unknown, patch: unknown, isStrategic: boolean): unknown {
  if (!isObject(patch)) return patch;
  const merged: Record<string, unknown> = isObject(object) ? { ...object } : {};
  for (const [name, value] of Object.entries(patch)) {
    const key = listKeys[name];
    if (value === null) delete merged[name];
    else if (isStrategic && key !== undefined && Array.isArray(value)) {
      const items = (Array.isArray(merged[name]) ? [...(merged[name] as unknown[])] : []) as Json[];
      for (const item of value as Json[]) {
        const index = items.findIndex((each) => each[key] === item[key]);
        if (index < 0) items.push(item);
        else items[index] = merge(items[index], item, isStrategic) as Json;
      }
      merged[name] = items;
    } else merged[name] = merge(merged[name], value, isStrategic);
  }
  return merged;
}

function applyOperations(object: Json, operations: unknown): Json {
  const copy = structuredClone(object) as Record<string, unknown>;
  for (const { op, path, value } of operations as { op: string; path: string; value: unknown }[]) {
    const parts = path
      .split("/")
      .slice(1)
      .map((part) => part.replaceAll("~1", "/").replaceAll("~0", "~"));
    const last = parts.pop() ?? "";
    let target: Record<string, unknown> = copy;
    for (const part of parts) {
      const next = target[part];
      if (typeof next !== "object" || next === null) throw new PatchRefused(`there is no ${path}`);
      target = next as Record<string, unknown>;
    }
    if (op === "test") {
      if (JSON.stringify(target[last]) !== JSON.stringify(value))
        throw new PatchRefused(`the test of ${path} fails`);
    } else if (op === "remove") delete target[last];
    else if (op === "add" || op === "replace") target[last] = value;
    else throw new PatchRefused(`there is no operation ${op}`);
  }
  return copy;
}
