// SPDX-License-Identifier: Apache-2.0

// The pool as ResourceSlices: one for each of its nodes, every device with the capacity that claims consume. Pods on any
// node can use them.

import { type Device, DeviceHealth, type Node } from "@millpond/api";
import type { V1Device, V1ResourceSlice } from "@kubernetes/client-node";
import type { Logger } from "pino";
import { asMergePatch, type Cluster, unlessStatus } from "../cluster/cluster.ts";
import { formatQuantity, parseWholeQuantity } from "../request/quantity.ts";
import { keysOf, type ResourceNames } from "../request/resource-names.ts";

/** The devices of a node as Kubernetes' scheduler sees them. A pure function; empty if the node accepts no claims. */
export function toDevices(node: Pick<Node, "name" | "devices">): V1Device[] {
  return node.devices
    .filter(({ health }) => health === DeviceHealth.HEALTHY)
    .map((device) => ({
      name: `gpu-${device.index}`,
      allowMultipleAllocations: true,
      attributes: {
        node: { string: node.name },
        uuid: { string: attributeText(device.uuid) },
        index: { _int: device.index },
        kind: { string: attributeText(device.kind) },
        model: { string: attributeText(device.name) },
        multiprocessors: { _int: device.multiprocessors },
        ...(/^\d+\.\d+$/.test(device.computeCapability)
          ? { computeCapability: { version: `${device.computeCapability}.0` } }
          : {}),
      },
      capacity: capacityOf(device),
    }));
}

/** The longest prefix of a text that fits into an attribute: 64 bytes of UTF-8. */
export function attributeText(text: string): string {
  let held = "";
  for (const character of text) {
    if (Buffer.byteLength(held + character) > 64) break;
    held += character;
  }
  return held;
}

/** Requests are not rounded: the pool's scheduler has decided them to the byte. */
function capacityOf({ memoryBytes }: Device) {
  const consumable = (value: bigint) => ({
    value: formatQuantity(value),
    requestPolicy: { _default: formatQuantity(value), validRange: { min: "0", max: formatQuantity(value) } },
  });
  return { cores: consumable(100n), memory: consumable(memoryBytes) };
}

/** Name of the slice of a node of the pool. */
export function sliceName({ domain }: ResourceNames, node: string): string {
  return `${domain.replaceAll(".", "-")}-${node}`;
}

export interface SlicePublisherOptions {
  readonly cluster: Cluster;
  readonly names: ResourceNames;
  readonly log: Logger;
  /**
   * Interval after which the slices are read again from the API server, because others may have deleted or changed
   * them. Default 20,000.
   */
  readonly readAgainMs?: number;
}

/** Keeps the slices of the API server equal to the pool. */
export class SlicePublisher {
  readonly #options: SlicePublisherOptions;
  /** The slices published last, by name. */
  readonly #published = new Map<string, string>();
  #readAtMs = Number.NEGATIVE_INFINITY;

  constructor(options: SlicePublisherOptions) {
    this.#options = options;
  }

  async publish(nodes: readonly Pick<Node, "name" | "devices">[]): Promise<void> {
    const { cluster, names, log, readAgainMs = 20_000 } = this.#options;
    const { domain } = names;
    const nowMs = performance.now();
    const wanted = new Map<string, { readonly node: string; readonly devices: V1Device[] }>();
    for (const node of nodes) {
      const devices = toDevices(node);
      if (devices.length > 0) wanted.set(sliceName(names, node.name), { node: node.name, devices });
    }
    const isKnown =
      nowMs - this.#readAtMs < readAgainMs &&
      [...wanted].every(([name, { devices }]) => this.#published.get(name) === digest(devices));
    if (isKnown && this.#published.size === wanted.size) return;
    const fieldSelector = `spec.driver=${domain}`;
    const there = (await cluster.resource.listResourceSlice({ fieldSelector })).items;
    const owner = await this.#owner();
    for (const slice of there) {
      const name = slice.metadata?.name ?? "";
      if (wanted.has(name)) continue;
      await unlessStatus(cluster.resource.deleteResourceSlice({ name }), 404);
      log.info({ slice: name }, "a node of the pool has disappeared");
    }
    this.#published.clear();
    for (const [name, { node, devices }] of wanted) {
      const old = there.find(({ metadata }) => metadata?.name === name);
      const generation = (old?.spec.pool.generation ?? 0) + 1;
      if (old === undefined) {
        const body = toSlice(names, node, devices, generation, owner);
        await unlessStatus(cluster.resource.createResourceSlice({ body }), 409);
      } else if (digest(old.spec.devices ?? []) !== digest(devices)) {
        const body = {
          metadata: { resourceVersion: old.metadata?.resourceVersion },
          spec: { pool: { generation }, devices: devices.map(toWire) },
        };
        await cluster.resource.patchResourceSlice({ name, body }, asMergePatch);
      }
      this.#published.set(name, digest(devices));
    }
    this.#readAtMs = nowMs;
  }

  /** The owner of all published slices: they are deleted with the device class. */
  async #owner(): Promise<{ readonly name: string; readonly uid: string } | undefined> {
    const { cluster, names } = this.#options;
    const found = await unlessStatus(cluster.resource.readDeviceClass({ name: names.domain }), 404);
    return found === undefined ? undefined : { name: names.domain, uid: found.metadata?.uid ?? "" };
  }
}

function toSlice(
  names: ResourceNames,
  node: string,
  devices: V1Device[],
  generation: number,
  owner: { readonly name: string; readonly uid: string } | undefined,
): V1ResourceSlice {
  return {
    apiVersion: "resource.k8s.io/v1",
    kind: "ResourceSlice",
    metadata: {
      name: sliceName(names, node),
      labels: { [keysOf(names).managed]: "true" },
      ...(owner === undefined
        ? {}
        : { ownerReferences: [{ apiVersion: "resource.k8s.io/v1", kind: "DeviceClass", ...owner }] }),
    },
    spec: {
      driver: names.domain,
      pool: { name: node, generation, resourceSliceCount: 1 },
      allNodes: true,
      devices,
    },
  };
}

/** The client library renames fields that are reserved words in other languages; a patch is sent as it is. */
export function toWire(device: V1Device): unknown {
  const attributes = Object.entries(device.attributes ?? {}).map(([name, { _int, ...rest }]) => [
    name,
    _int === undefined ? rest : { int: _int },
  ]);
  const capacity = Object.entries(device.capacity ?? {}).map(([name, { value, requestPolicy }]) => [
    name,
    { value, requestPolicy: { default: requestPolicy?._default, validRange: requestPolicy?.validRange } },
  ]);
  return {
    ...device,
    attributes: Object.fromEntries(attributes),
    capacity: Object.fromEntries(capacity),
  };
}

/** Equal for the same devices, however a quantity is written. */
function digest(devices: readonly V1Device[]): string {
  return JSON.stringify(
    devices.map(({ name, attributes = {}, capacity = {} }) => [
      name,
      Object.entries(attributes)
        .map(([key, value]) => [key, value._int, value.string, value.version])
        .sort(byName),
      Object.entries(capacity)
        .map(([key, { value }]) => [key, String(parseWholeQuantity(value, key))])
        .sort(byName),
    ]),
  );
}

function byName([a]: readonly unknown[], [b]: readonly unknown[]): number {
  return String(a) < String(b) ? -1 : 1;
}
