// SPDX-License-Identifier: Apache-2.0

// The request of a container, read from its resources.

import {
  bytesPerMiB,
  formatBytes,
  maxMemoryBytes,
  type MemoryRequest,
  millpondError,
  quote,
} from "@millpond/api";
import { parseWholeQuantity } from "./quantity.ts";
import { kindOfResource, type ResourceKind, type ResourceNames } from "./resource-names.ts";

/** The part of the pool that one container requests. */
export interface Slice {
  /** 1 to 64. */
  readonly gpus: number;
  /** Share of each vGPU; absent: the whole device. */
  readonly memory?: MemoryRequest;
  /** Percent of each device, 1 to 100; absent: in proportion to the memory. */
  readonly compute?: number;
}

/** Members of a container that matter here. */
export interface ResourceHolder {
  readonly name: string;
  readonly resources?:
    | {
        readonly limits?: Readonly<Record<string, string>> | undefined;
        readonly requests?: Readonly<Record<string, string>> | undefined;
      }
    | undefined;
}

/**
 * Reads the request of a container; undefined: there is none. Limits and requests of a resource must be equal, as Kubernetes
 * requires for every extended resource; a resource with a request and no limit is refused, as by Kubernetes.
 *
 * @throws MILLPOND_E_INVALID naming the container, the resource and its valid values
 */
export function readSlice(names: ResourceNames, container: ResourceHolder): Slice | undefined {
  const limits = collect(names, container, "limits");
  const requests = collect(names, container, "requests");
  for (const [kind, { name, text }] of requests) {
    const limit = limits.get(kind);
    const asked = within(container, () => amount(kind, { name, text }));
    if (limit === undefined || within(container, () => amount(kind, limit)) !== asked) {
      throw refuse(
        container,
        `requests ${quote(text)} of ${name} and has a limit of ${limit === undefined ? "none" : quote(limit.text)}`,
        "Set the limit only: of an extended resource the request is the limit.",
      );
    }
  }
  if (limits.size === 0) return undefined;
  const read = (kind: ResourceKind): bigint | undefined => {
    const given = limits.get(kind);
    return given === undefined ? undefined : within(container, () => amount(kind, given));
  };
  const gpus = read("vgpu") ?? 1n;
  checkRange(container, limits.get("vgpu"), gpus, [1n, 64n], "vGPUs");
  const compute = read("compute");
  checkRange(container, limits.get("compute"), compute, [1n, 100n], "percent of each device");
  const percent = read("memory-percent");
  checkRange(container, limits.get("memory-percent"), percent, [1n, 100n], "percent of each device");
  const bytes = read("memory");
  const memoryText = limits.get("memory");
  if (bytes !== undefined && (bytes < bytesPerMiB || bytes > maxMemoryBytes)) {
    throw refuse(
      container,
      `asks for ${quote(memoryText?.text ?? "")} of ${memoryText?.name}, which is not between 1 MiB and 1 PiB`,
      "Write a size such as 8Gi; a number below 1048576 counts MiB.",
    );
  }
  if (bytes !== undefined && percent !== undefined) {
    throw refuse(
      container,
      `asks for ${formatBytes(bytes)} and for ${percent}% of each device's memory`,
      `Leave out ${limits.get("memory")?.name} or ${limits.get("memory-percent")?.name}.`,
    );
  }
  return {
    gpus: Number(gpus),
    ...(bytes === undefined ? {} : { memory: { kind: "bytes", bytes } as const }),
    ...(percent === undefined ? {} : { memory: { kind: "percent", percent: Number(percent) } as const }),
    ...(compute === undefined ? {} : { compute: Number(compute) }),
  };
}

/** Returns the container's resources without those of the pool. */
export function withoutSlice<T extends Readonly<Record<string, unknown>>>(
  names: ResourceNames,
  resources: Readonly<T> | undefined,
  keeps: ReadonlyMap<string, string>,
): T | undefined {
  if (resources === undefined) return undefined;
  const strip = (list: unknown, isLimit: boolean): Record<string, string> | undefined => {
    const kept = Object.fromEntries(
      Object.entries((list ?? {}) as Record<string, string>).filter(
        ([name]) => kindOfResource(names, name) === undefined,
      ),
    );
    if (isLimit) for (const [name, value] of keeps) kept[name] = value;
    return Object.keys(kept).length === 0 ? undefined : kept;
  };
  const { limits, requests, ...rest } = resources;
  const strippedLimits = strip(limits, true);
  const strippedRequests = strip(requests, false);
  return {
    ...rest,
    ...(strippedLimits === undefined ? {} : { limits: strippedLimits }),
    ...(strippedRequests === undefined ? {} : { requests: strippedRequests }),
  } as unknown as T;
}

interface Given {
  readonly name: string;
  readonly text: string;
}

function collect(
  names: ResourceNames,
  container: ResourceHolder,
  list: "limits" | "requests",
): Map<ResourceKind, Given> {
  const found = new Map<ResourceKind, Given>();
  for (const [name, text] of Object.entries(container.resources?.[list] ?? {})) {
    const kind = kindOfResource(names, name);
    if (kind === undefined) continue;
    const other = found.get(kind);
    if (other !== undefined) {
      throw refuse(container, `asks for ${other.name} and ${name}, which are the same`, "Omit one of them.");
    }
    found.set(kind, { name, text });
  }
  return found;
}

/** A vGPU cannot have less than 1 MiB, so a smaller number counts MiB, as on the command line and in comparable products. */
function amount(kind: ResourceKind, { name, text }: Given): bigint {
  const value = parseWholeQuantity(text, name);
  return kind === "memory" && value < bytesPerMiB ? value * bytesPerMiB : value;
}

function checkRange(
  container: ResourceHolder,
  given: Given | undefined,
  value: bigint | undefined,
  [least, most]: readonly [bigint, bigint],
  unit: string,
): void {
  if (given === undefined || value === undefined || (value >= least && value <= most)) return;
  throw refuse(
    container,
    `asks for ${quote(given.text)} of ${given.name}, which counts ${unit} and goes from ${least} to ${most}`,
    `Ask for a whole number from ${least} to ${most}.`,
  );
}

function within<T>(container: ResourceHolder, read: () => T): T {
  try {
    return read();
  } catch (error) {
    const said = error instanceof Error && "rawMessage" in error ? String(error.rawMessage) : String(error);
    throw refuse(container, said.split(". ")[0] ?? said, "Ask for a whole number, such as 1, 30 or 8Gi.");
  }
}

function refuse(container: ResourceHolder, what: string, remedy: string): Error {
  return millpondError("MILLPOND_E_INVALID", `the container ${quote(container.name)} ${what}`, { remedy });
}
