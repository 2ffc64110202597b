// SPDX-License-Identifier: Apache-2.0

// The objects of a simulated API server: versions, deletion with finalizers and owners, and the events for watches.

import { randomUUID } from "node:crypto";

export interface StoredObject {
  readonly apiVersion?: string;
  readonly kind?: string;
  readonly metadata: {
    readonly name: string;
    readonly namespace?: string;
    readonly uid: string;
    readonly resourceVersion: string;
    readonly labels?: Readonly<Record<string, string>>;
    readonly annotations?: Readonly<Record<string, string>>;
    readonly finalizers?: readonly string[];
    readonly deletionTimestamp?: string;
    readonly ownerReferences?: readonly { readonly uid: string }[];
    readonly [member: string]: unknown;
  };
  readonly [member: string]: unknown;
}

/** A change from `before` to `after`; `before` is missing for a new object, `after` for a deleted one. */
export interface Change {
  readonly version: number;
  /** `group/resource`. */
  readonly kind: string;
  readonly before: StoredObject | undefined;
  readonly after: StoredObject | undefined;
}

/** An API server's error response. */
export class Refused extends Error {
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

export class ObjectStore {
  readonly #objects = new Map<string, Map<string, StoredObject>>();
  readonly #listeners = new Set<(change: Change) => void>();
  #changes: Change[] = [];
  #version = 100;
  /** Watches from an older version are answered by 410. */
  #oldest = 0;

  get version(): number {
    return this.#version;
  }

  list(kind: string): StoredObject[] {
    return [...(this.#objects.get(kind)?.values() ?? [])];
  }

  find(kind: string, namespace: string, name: string): StoredObject | undefined {
    return this.#objects.get(kind)?.get(`${namespace}/${name}`);
  }

  /** @throws Refused 404 */
  get(kind: string, namespace: string, name: string): StoredObject {
    const found = this.find(kind, namespace, name);
    if (found === undefined) throw new Refused(404, `${kind} "${name}" not found`);
    return found;
  }

  /** @throws Refused 409 if the name is taken, 404 or 403 if its namespace does not exist or is ending */
  create(kind: string, namespace: string, body: Readonly<Record<string, unknown>>): StoredObject {
    const { generateName, name: given, ...more } = (body["metadata"] ?? {}) as Record<string, unknown>;
    const name = typeof given === "string" ? given : `${String(generateName)}${randomUUID().slice(0, 5)}`;
    if (this.find(kind, namespace, name) !== undefined)
      throw new Refused(409, `${kind} "${name}" already exists`);
    if (namespace !== "") {
      const { metadata } = this.get("/namespaces", "", namespace);
      if (metadata.deletionTimestamp !== undefined)
        throw new Refused(403, `namespace ${namespace} is being terminated`);
    }
    const metadata = {
      ...more,
      name,
      ...(namespace === "" ? {} : { namespace }),
      uid: randomUUID(),
      creationTimestamp: new Date().toISOString(),
      resourceVersion: "",
    };
    return this.#put(kind, undefined, { ...body, metadata });
  }

  /** @throws Refused 409 if the body belongs to another object or an older version */
  replace(kind: string, before: StoredObject, body: Readonly<Record<string, unknown>>): StoredObject {
    const given = (body["metadata"] ?? {}) as StoredObject["metadata"];
    const { uid, resourceVersion } = before.metadata;
    const now = this.find(kind, before.metadata.namespace ?? "", before.metadata.name);
    if (given.uid !== uid || given.resourceVersion !== resourceVersion || now !== before)
      throw new Refused(409, `${kind} "${before.metadata.name}" has been modified`);
    const after = this.#put(kind, before, { ...body, metadata: given });
    const { deletionTimestamp, finalizers = [] } = after.metadata;
    const isHeld = finalizers.length > 0 || this.#runs(kind, after);
    if (deletionTimestamp !== undefined && !isHeld) this.#remove(kind, after);
    return after;
  }

  /** @throws Refused 409 if the object is not the one that the preconditions name */
  delete(
    kind: string,
    object: StoredObject,
    options: {
      readonly gracePeriodSeconds?: number;
      readonly preconditions?: { readonly uid?: string; readonly resourceVersion?: string };
    },
  ): void {
    const { uid, resourceVersion } = options.preconditions ?? {};
    const { metadata } = object;
    if (
      (uid !== undefined && uid !== metadata.uid) ||
      (resourceVersion !== undefined && resourceVersion !== metadata.resourceVersion)
    )
      throw new Refused(409, "the preconditions are not met");
    const isHeld =
      (metadata.finalizers ?? []).length > 0 ||
      kind === "/namespaces" ||
      (this.#runs(kind, object) && options.gracePeriodSeconds !== 0);
    if (!isHeld) this.#remove(kind, object);
    else if (metadata.deletionTimestamp === undefined) {
      const graced = {
        ...metadata,
        deletionTimestamp: new Date().toISOString(),
        deletionGracePeriodSeconds: options.gracePeriodSeconds ?? 30,
      };
      this.#put(kind, object, { ...object, metadata: graced });
    }
  }

  /**
   * Changes after a version.
   *
   * @throws Refused 410 if they are forgotten
   */
  since(version: number): readonly Change[] {
    if (version < this.#oldest) throw new Refused(410, "too old resource version");
    return this.#changes.filter((change) => change.version > version);
  }

  forgetHistory(): void {
    this.#changes = [];
    this.#version += 1;
    this.#oldest = this.#version;
  }

  onChange(listener: (change: Change) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** A pod on a node exists until the kubelet has ended it. */
  #runs(kind: string, { spec, status }: StoredObject): boolean {
    const { nodeName } = (spec ?? {}) as { nodeName?: string };
    const { phase = "Pending" } = (status ?? {}) as { phase?: string };
    return kind === "/pods" && nodeName !== undefined && phase !== "Succeeded" && phase !== "Failed";
  }

  #put(
    kind: string,
    before: StoredObject | undefined,
    body: Readonly<Record<string, unknown>>,
  ): StoredObject {
    this.#version += 1;
    const metadata = {
      ...(body["metadata"] as StoredObject["metadata"]),
      resourceVersion: String(this.#version),
    };
    const after: StoredObject = { ...structuredClone(body), metadata };
    const objects = this.#objects.get(kind) ?? new Map<string, StoredObject>();
    this.#objects.set(kind, objects.set(`${metadata.namespace ?? ""}/${metadata.name}`, after));
    this.#tell({ version: this.#version, kind, before, after });
    return after;
  }

  #remove(kind: string, before: StoredObject): void {
    const { namespace = "", name, uid } = before.metadata;
    this.#version += 1;
    this.#objects.get(kind)?.delete(`${namespace}/${name}`);
    this.#tell({ version: this.#version, kind, before, after: undefined });
    for (const [owned, objects] of this.#objects) {
      for (const object of objects.values())
        if (object.metadata.ownerReferences?.some((owner) => owner.uid === uid) === true)
          this.delete(owned, object, {});
    }
  }

  #tell(change: Change): void {
    this.#changes.push(change);
    for (const listener of this.#listeners) listener(change);
  }
}
