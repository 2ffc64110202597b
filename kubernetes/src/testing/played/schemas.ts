// SPDX-License-Identifier: Apache-2.0

// What the APIs of Kubernetes 1.34 to 1.36 accept in the objects that Millpond publishes: the members of their types in
// `resource.k8s.io/v1` according to the OpenAPI document, and the limits of the validation.

import type { Json } from "./patches.ts";

/** A type: a scalar by its check, an object by its members, or a list or map of a type. */
type Type =
  | ((value: unknown) => string | undefined)
  | ObjectType
  | { readonly list: Type; readonly most: number }
  | MapType;

interface ObjectType {
  readonly members: Readonly<Record<string, Member>>;
  /** Exactly one of the members must be present. */
  readonly isOneOf?: boolean;
}

interface MapType {
  readonly map: Type;
  readonly most: number;
  readonly key: RegExp;
}

interface Member {
  readonly type: Type;
  readonly isRequired?: boolean;
  /** The first minor version with this member; absent: 34 or earlier. */
  readonly since?: number;
}

/** Versions for which the objects must be valid. */
export const minors = [34, 35, 36] as const;

/** @param most In bytes. */
const text =
  (pattern: RegExp, most: number) =>
  (value: unknown): string | undefined =>
    typeof value === "string" && Buffer.byteLength(value) <= most && pattern.test(value)
      ? undefined
      : "no such text";
const boolean = (value: unknown): string | undefined => (typeof value === "boolean" ? undefined : "no truth");
const integer = (value: unknown): string | undefined =>
  Number.isSafeInteger(value) ? undefined : "no integer";
const oneOf =
  (...values: readonly string[]) =>
  (value: unknown): string | undefined =>
    values.includes(String(value)) ? undefined : `none of ${values.join(", ")}`;

const label = text(/^[a-z0-9]([-a-z0-9]*[a-z0-9])?$/, 63);
const subdomain = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/;
const quantity = text(/^[+-]?\d+(\.\d+)?([KMGTPE]i|[numkMGTPE]|[eE][+-]?\d+)?$/, 64);
/** A name of an attribute or a capacity, with or without a domain. */
const qualified = /^([a-z0-9]([-a-z0-9.]*[a-z0-9])?\/)?[A-Za-z_]\w{0,31}$/;
const version = text(/^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$/, 64);

/** Belongs to other drivers; our objects do not have it. */
const foreign = (): string => "Millpond does not use this";

const required = (type: Type): Member => ({ type, isRequired: true });
const optional = (type: Type): Member => ({ type });
const since = (minor: number): Member => ({ type: foreign, since: minor });

const selector: ObjectType = {
  members: { cel: required({ members: { expression: required(text(/\S/, 10 * 1024)) } }) },
};
const capacities = (type: Type): MapType => ({ map: type, most: 32, key: qualified });

const device: ObjectType = {
  members: {
    name: required(label),
    allowMultipleAllocations: optional(boolean),
    attributes: optional({
      map: {
        isOneOf: true,
        members: {
          bool: optional(boolean),
          int: optional(integer),
          string: optional(text(/^[^]*$/, 64)),
          version: optional(version),
          bools: since(36),
          ints: since(36),
          strings: since(36),
          versions: since(36),
        },
      },
      most: 32,
      key: qualified,
    }),
    capacity: optional(
      capacities({
        members: {
          value: required(quantity),
          requestPolicy: optional({
            members: {
              default: optional(quantity),
              validRange: optional({
                members: { min: required(quantity), max: optional(quantity), step: optional(quantity) },
              }),
              validValues: optional({ list: quantity, most: 10 }),
            },
          }),
        },
      }),
    ),
    nodeName: optional(foreign),
    nodeSelector: optional(foreign),
    allNodes: optional(foreign),
    taints: optional(foreign),
    consumesCounters: optional(foreign),
    bindsToNode: optional(foreign),
    bindingConditions: optional(foreign),
    bindingFailureConditions: optional(foreign),
    nodeAllocatableResourceMappings: since(36),
  },
};

const types: Readonly<Record<string, ObjectType>> = {
  "resource.k8s.io/resourceslices": {
    members: {
      driver: required(text(subdomain, 63)),
      pool: required({
        members: {
          name: required(text(/^[a-z0-9]([-a-z0-9.]*[a-z0-9])?(\/[a-z0-9]([-a-z0-9.]*[a-z0-9])?)*$/, 253)),
          generation: required(integer),
          resourceSliceCount: required(integer),
        },
      }),
      allNodes: optional(boolean),
      nodeName: optional(foreign),
      nodeSelector: optional(foreign),
      perDeviceNodeSelection: optional(foreign),
      sharedCounters: optional(foreign),
      devices: optional({ list: device, most: 128 }),
    },
  },
  "resource.k8s.io/resourceclaims": {
    members: {
      devices: optional({
        members: {
          requests: optional({
            list: {
              members: {
                name: required(label),
                exactly: optional({
                  members: {
                    deviceClassName: required(text(subdomain, 253)),
                    allocationMode: optional(oneOf("ExactCount", "All")),
                    count: optional(integer),
                    adminAccess: optional(boolean),
                    selectors: optional({ list: selector, most: 32 }),
                    tolerations: optional({ list: foreign, most: 16 }),
                    capacity: optional({ members: { requests: optional(capacities(quantity)) } }),
                  },
                }),
                firstAvailable: optional({ list: foreign, most: 8 }),
              },
            },
            most: 32,
          }),
          constraints: optional({ list: foreign, most: 32 }),
          config: optional({ list: foreign, most: 32 }),
        },
      }),
    },
  },
  "resource.k8s.io/deviceclasses": {
    members: {
      selectors: optional({ list: selector, most: 32 }),
      config: optional({ list: foreign, most: 32 }),
      extendedResourceName: optional(text(/^[a-z0-9.-]+\/[A-Za-z0-9]([-\w.]*[A-Za-z0-9])?$/, 317)),
    },
  },
};

/**
 * Everything in the `spec` of an object that an API server of `1.minor` would reject, one line each. Empty for unknown
 * kinds.
 */
export function violations(kind: string, object: Json, minor: number): string[] {
  const type = types[kind];
  return type === undefined ? [] : check(type, object["spec"] ?? {}, "spec", minor);
}

function check(type: Type, value: unknown, path: string, minor: number): string[] {
  if (typeof type === "function") {
    const wrong = type(value);
    return wrong === undefined ? [] : [`${path}: ${wrong}: ${JSON.stringify(value)}`];
  }
  if ("list" in type) {
    if (!Array.isArray(value)) return [`${path}: no list`];
    const tooMany = value.length > type.most ? [`${path}: more than ${type.most}`] : [];
    return [
      ...tooMany,
      ...value.flatMap((each, index) => check(type.list, each, `${path}[${index}]`, minor)),
    ];
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) return [`${path}: no object`];
  const entries = Object.entries(value);
  if ("map" in type) {
    const tooMany = entries.length > type.most ? [`${path}: more than ${type.most}`] : [];
    return [
      ...tooMany,
      ...entries.flatMap(([key, each]) =>
        type.key.test(key)
          ? check(type.map, each, `${path}.${key}`, minor)
          : [`${path}: no such name: ${key}`],
      ),
    ];
  }
  const missing = Object.entries(type.members)
    .filter(([name, { isRequired }]) => isRequired === true && !Object.hasOwn(value, name))
    .map(([name]) => `${path}.${name} is missing`);
  const notOne = type.isOneOf === true && entries.length !== 1 ? [`${path}: not exactly one member`] : [];
  return [
    ...missing,
    ...notOne,
    ...entries.flatMap(([name, each]) => {
      const member = Object.hasOwn(type.members, name) ? type.members[name] : undefined;
      if (member === undefined || (member.since ?? 0) > minor) return [`${path}.${name} is not known`];
      return check(member.type, each, `${path}.${name}`, minor);
    }),
  ];
}
