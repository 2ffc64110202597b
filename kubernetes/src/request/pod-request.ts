// SPDX-License-Identifier: Apache-2.0

// The request of a pod: the slices of its containers, and the options of their claims.

import {
  claimFieldNames,
  type ClaimFieldName,
  claimFieldSpecs,
  type ClaimValues,
  millpondError,
  parseClaimVariables,
  quote,
} from "@millpond/api";
import { keysOf, type ResourceNames } from "./resource-names.ts";
import { readSlice, type ResourceHolder, type Slice } from "./slice.ts";

/** The members of a container of a pod spec that matter here. */
export interface ContainerLike extends ResourceHolder {
  /** `Always` makes an init container a sidecar. */
  readonly restartPolicy?: string | undefined;
}

/** The members of a pod that matter here. */
export interface PodLike {
  readonly metadata?:
    | {
        readonly name?: string | undefined;
        readonly generateName?: string | undefined;
        readonly namespace?: string | undefined;
        readonly annotations?: Readonly<Record<string, string>> | undefined;
        readonly labels?: Readonly<Record<string, string>> | undefined;
      }
    | undefined;
  readonly spec?:
    | {
        readonly containers?: readonly ContainerLike[] | undefined;
        readonly initContainers?: readonly ContainerLike[] | undefined;
        readonly ephemeralContainers?: readonly ResourceHolder[] | undefined;
      }
    | undefined;
}

/** One claim of a pod, and the containers that use it. */
export interface PodSlice {
  readonly slice: Slice;
  /** An init container uses the claim of a container that runs after it. */
  readonly containers: readonly string[];
}

export interface PodRequest {
  /** One for each container with a request, in the order of the pod spec; at least one. */
  readonly slices: readonly PodSlice[];
  /** Options of all its claims, from annotations. */
  readonly options: ClaimValues;
  /** Whether all pods of its Job or JobSet form one gang. */
  readonly isWholeJob?: boolean;
  /** Whether the pod is replaced when the pool takes its vGPUs. */
  readonly isRequeued?: boolean;
}

/** The most claims of a pod: they are bound together, as a gang. */
const maxSlices = 16;

/** Members that annotations cannot set: they come from resources, the namespace and the priority class, or have defaults. */
const notForAnnotations = new Set<ClaimFieldName>([
  "gpus",
  "memory",
  "compute",
  "tenant",
  "priority",
  "labels",
]);

const annotationFields = new Map(
  claimFieldNames
    .filter((name) => !notForAnnotations.has(name))
    .map((name) => [/--([a-z-]+)/.exec(claimFieldSpecs[name].flags)?.[1] ?? name, name]),
);

/**
 * Reads the request of a pod as its author wrote it; undefined: the pod requests nothing of the pool.
 *
 * @param own Annotations reserved for Millpond that the author of this pod may nevertheless write.
 * @throws MILLPOND_E_INVALID
 */
export function readPodRequest(
  names: ResourceNames,
  pod: PodLike,
  own: readonly string[] = [],
): PodRequest | undefined {
  const slices = readSlices(names, pod);
  if (slices.length === 0) {
    const stray = Object.keys(pod.metadata?.annotations ?? {}).find(
      (key) => isOption(names, key) && !own.includes(key),
    );
    if (stray === undefined) return undefined;
    throw millpondError(
      "MILLPOND_E_INVALID",
      `the pod has the annotation ${stray}, and no container of it asks for the pool`,
      {
        remedy: `Give a container a limit such as ${names.resources.vgpu[0]}: 1, or leave the annotation out.`,
      },
    );
  }
  return { slices, ...readOptions(names, pod, (key) => !own.includes(key)) };
}

/**
 * Reads the options of a pod that the webhook has prepared, which also has the webhook's own annotations.
 *
 * @throws MILLPOND_E_INVALID
 */
export function readPodOptions(names: ResourceNames, pod: PodLike): Omit<PodRequest, "slices"> {
  const keys = keysOf(names);
  const { request, id, node, host, claims, retries, original, follows } = keys;
  const own = new Set<string>([request, id, node, host, claims, retries, original, follows]);
  return readOptions(names, pod, (key) => !own.has(key));
}

function readSlices(names: ResourceNames, { spec }: PodLike): PodSlice[] {
  const slices: { slice: Slice; containers: string[] }[] = [];
  const inits = spec?.initContainers ?? [];
  const lasting = [...(spec?.containers ?? []), ...inits.filter((each) => each.restartPolicy === "Always")];
  for (const container of lasting) {
    const slice = readSlice(names, container);
    if (slice !== undefined) slices.push({ slice, containers: [container.name] });
  }
  for (const container of inits.filter((each) => each.restartPolicy !== "Always")) {
    const slice = readSlice(names, container);
    if (slice === undefined) continue;
    // An init container ends before the others start, so it uses the claim of one of them.
    const same = slices.find((each) => sameSlice(each.slice, slice));
    if (same !== undefined) {
      same.containers.push(container.name);
    } else if (
      slices.length === 0 ||
      lasting.every((each) => !slices.some((s) => s.containers.includes(each.name)))
    ) {
      slices.push({ slice, containers: [container.name] });
    } else {
      throw millpondError(
        "MILLPOND_E_INVALID",
        `the init container ${quote(container.name)} requests a different part of the pool than the containers ` +
          slices.flatMap((each) => each.containers).join(", "),
        { remedy: "It uses the vGPUs of a container that runs after it: ask for the same in both." },
      );
    }
  }
  for (const container of spec?.ephemeralContainers ?? []) {
    if (readSlice(names, container) !== undefined) {
      throw millpondError(
        "MILLPOND_E_INVALID",
        `the ephemeral container ${quote(container.name)} asks for the pool`,
        { remedy: "Run it in a separate pod." },
      );
    }
  }
  if (slices.length > maxSlices) {
    throw millpondError(
      "MILLPOND_E_INVALID",
      `${slices.length} containers of the pod ask for the pool, which is more than ${maxSlices}`,
      { remedy: "Split the pod." },
    );
  }
  return slices;
}

function readOptions(
  names: ResourceNames,
  { metadata }: PodLike,
  counts: (key: string) => boolean,
): Omit<PodRequest, "slices"> {
  const { domain } = names;
  const { annotations = {}, labels = {} } = metadata ?? {};
  const keys = keysOf(names);
  const variables: Record<string, string> = {};
  const isWholeJob = annotations[`${domain}/gang-size`] === "all";
  const isRequeued = readRequeue(keys.requeue, annotations[keys.requeue]);
  const given: [string, string][] = Object.entries(annotations).filter(
    ([key]) => isOption(names, key) && key !== keys.requeue && counts(key),
  );
  const queueLabel = labels[keys.queue];
  if (queueLabel !== undefined && annotations[keys.queue] === undefined) given.push([keys.queue, queueLabel]);
  for (const [key, text] of given) {
    const field = annotationFields.get(key.slice(domain.length + 1));
    if (field === undefined) {
      throw millpondError("MILLPOND_E_INVALID", `the pod's annotation ${quote(key)} is unknown`, {
        remedy: `Annotations of ${domain} are ${[...annotationFields.keys()].join(", ")}, requeue, resize.`,
      });
    }
    if (field === "gangSize" && isWholeJob) continue;
    if (field === "gang" && isWholeJob) {
      throw millpondError("MILLPOND_E_INVALID", `the pod has both ${key} and a gang-size of all`, {
        remedy:
          "The pods of a Job or JobSet are the gang; leave the name out, or say of how many pods it is.",
      });
    }
    variables[claimFieldSpecs[field].env] = text;
  }
  try {
    return {
      options: parseClaimVariables(variables),
      ...(isWholeJob ? { isWholeJob } : {}),
      ...(isRequeued ? { isRequeued } : {}),
    };
  } catch (error) {
    const variable = Object.keys(variables).find((each) => String(error).includes(`${each}:`));
    const field = claimFieldNames.find((name) => claimFieldSpecs[name].env === variable);
    const word = [...annotationFields].find(([, name]) => name === field)?.[0] ?? "";
    const said = error instanceof Error && "rawMessage" in error ? String(error.rawMessage) : String(error);
    const what = said.slice(said.indexOf(": ") + 2).split(/\. (?=\p{Lu})/u)[0] ?? said;
    throw millpondError("MILLPOND_E_INVALID", `the pod's annotation ${domain}/${word}: ${what}`, {
      cause: error,
    });
  }
}

function readRequeue(key: string, text = "false"): boolean {
  if (text === "true" || text === "false") return text === "true";
  throw millpondError(
    "MILLPOND_E_INVALID",
    `the pod's annotation ${key}: ${quote(text)} is neither true nor false`,
  );
}

/** Whether an annotation is an option that a pod's author may set. */
function isOption(names: ResourceNames, key: string): boolean {
  const { resize } = keysOf(names);
  return key.startsWith(`${names.domain}/`) && key !== resize && !key.startsWith(`${resize}.`);
}

export function sameSlice(a: Slice, b: Slice): boolean {
  return formatSlice(a) === formatSlice(b);
}

/** A slice in JSON, which has no bigint. */
interface SliceText {
  readonly gpus: number;
  readonly memoryBytes?: string;
  readonly memoryPercent?: number;
  readonly compute?: number;
}

function toText({ gpus, memory, compute }: Slice): SliceText {
  return {
    gpus,
    ...(memory?.kind === "bytes" ? { memoryBytes: String(memory.bytes) } : {}),
    ...(memory?.kind === "percent" ? { memoryPercent: memory.percent } : {}),
    ...(compute === undefined ? {} : { compute }),
  };
}

function formatSlice(slice: Slice): string {
  return JSON.stringify(toText(slice));
}

/** Formats slices for the annotation `request`. */
export function formatSlices(slices: readonly PodSlice[]): string {
  return JSON.stringify(slices.map(({ slice, containers }) => ({ ...toText(slice), containers })));
}

/**
 * Reads what `formatSlices` wrote.
 *
 * @throws MILLPOND_E_INVALID for anything else
 */
export function parseSlices(text: string): PodSlice[] {
  const slices = tryJson(text);
  if (!Array.isArray(slices) || slices.length === 0 || slices.length > maxSlices) throw notWritten(text);
  return slices.map((each: unknown) => {
    if (typeof each !== "object" || each === null) throw notWritten(text);
    const { gpus, memoryBytes, memoryPercent, compute, containers, ...more } = each as Record<
      string,
      unknown
    >;
    if (
      !isWhole(gpus, 64) ||
      !(
        memoryBytes === undefined ||
        (typeof memoryBytes === "string" && /^[1-9]\d{0,15}$/.test(memoryBytes))
      ) ||
      !(memoryPercent === undefined || isWhole(memoryPercent, 100)) ||
      !(compute === undefined || isWhole(compute, 100)) ||
      !Array.isArray(containers) ||
      containers.length === 0 ||
      !containers.every((name) => typeof name === "string") ||
      Object.keys(more).length > 0 ||
      (memoryBytes !== undefined && memoryPercent !== undefined)
    ) {
      throw notWritten(text);
    }
    return {
      slice: {
        gpus,
        ...(memoryBytes === undefined
          ? {}
          : { memory: { kind: "bytes", bytes: BigInt(memoryBytes) } as const }),
        ...(memoryPercent === undefined
          ? {}
          : { memory: { kind: "percent", percent: memoryPercent } as const }),
        ...(compute === undefined ? {} : { compute }),
      },
      containers,
    };
  });
}

function tryJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function isWhole(value: unknown, most: number): value is number {
  return typeof value === "number" && Number.isInteger(value) && value >= 1 && value <= most;
}

function notWritten(text: string): Error {
  return millpondError("MILLPOND_E_INVALID", `${quote(text)} is not what Millpond's webhook writes`, {
    remedy: "Leave the annotation out: it is made from the limits of the containers.",
  });
}
