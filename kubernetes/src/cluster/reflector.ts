// SPDX-License-Identifier: Apache-2.0

// A copy of one kind of objects of a cluster, kept current: list once, then watch from there. Survives servers that go
// away, watches that end, bookmarks, and versions that the server has forgotten (410).

import { setTimeout as delay } from "node:timers/promises";
import type { KubernetesObject } from "@kubernetes/client-node";
import type { Logger } from "pino";
import { type Cluster, describeFailure, statusOf } from "./cluster.ts";

interface Page<T> {
  readonly items: readonly T[];
  readonly metadata?: { readonly resourceVersion?: string; readonly _continue?: string } | undefined;
}

export interface ReflectorOptions<T> {
  readonly cluster: Cluster;
  /** `/api/v1/pods`. */
  readonly path: string;
  readonly labelSelector?: string;
  readonly fieldSelector?: string;
  readonly list: (page: {
    readonly limit: number;
    readonly _continue?: string;
    readonly labelSelector?: string;
    readonly fieldSelector?: string;
  }) => Promise<Page<T>>;
  /** Called with each object that is new or has changed, and with the last state of each deleted one. */
  readonly onChange: (object: T, isGone: boolean) => void;
  readonly log: Logger;
  /** First wait after a failure, doubled up to 64 times that. Default 200 ms. */
  readonly retryMs?: number;
}

const pageSize = 500;

/** Number of failures in a row after which everything is listed again. */
const listAgainAfter = 5;

/** A watch that ends sooner than this without an event counts as failed. */
const shortWatchMs = 1000;

export class Reflector<T extends KubernetesObject> {
  readonly #options: ReflectorOptions<T>;
  readonly #objects = new Map<string, T>();
  readonly #stop = new AbortController();
  readonly #synced: Promise<void>;
  #markSynced: () => void = () => undefined;
  #isSynced = false;
  #resourceVersion = "";
  #events = 0;
  #failures = 0;
  #finished: Promise<void> = Promise.resolve();

  constructor(options: ReflectorOptions<T>) {
    this.#options = options;
    this.#synced = new Promise((resolve) => {
      this.#markSynced = resolve;
    });
  }

  /** By UID. */
  get objects(): ReadonlyMap<string, T> {
    return this.#objects;
  }

  /** Whether the copy has been complete at some time since the start. */
  get isSynced(): boolean {
    return this.#isSynced;
  }

  /** Resolves when the first list is complete. */
  get synced(): Promise<void> {
    return this.#synced;
  }

  start(): this {
    this.#finished = this.#run();
    return this;
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#finished;
  }

  async #run(): Promise<void> {
    const { log, path, retryMs = 200 } = this.#options;
    const { signal } = this.#stop;
    while (!signal.aborted) {
      try {
        if (this.#resourceVersion === "") await this.#listAll();
        const begunMs = performance.now();
        const events = this.#events;
        await this.#watchOnce();
        // A server, or its proxy, that ends watches immediately must not be called without a pause.
        if (this.#events === events && performance.now() - begunMs < shortWatchMs) throw new WatchTooShort();
        this.#failures = 0;
      } catch (error) {
        if (signal.aborted) return;
        const isForgotten = statusOf(error) === 410 || error instanceof VersionForgotten;
        this.#failures += 1;
        // A server that was restored from a backup never had the version, and only answers that it is not there yet.
        if (isForgotten || this.#failures % listAgainAfter === 0) this.#resourceVersion = "";
        const waitMs =
          isForgotten && this.#failures === 1 ? 0 : retryMs * 2 ** Math.min(6, this.#failures - 1);
        log.debug({ path, failure: describeFailure(error), waitMs }, "monitoring again");
        await delay(waitMs * (0.5 + Math.random()), undefined, { signal }).catch(() => undefined);
      }
    }
  }

  get #selectors(): { labelSelector?: string; fieldSelector?: string } {
    const { labelSelector, fieldSelector } = this.#options;
    return {
      ...(labelSelector === undefined ? {} : { labelSelector }),
      ...(fieldSelector === undefined ? {} : { fieldSelector }),
    };
  }

  async #listAll(): Promise<void> {
    const { list } = this.#options;
    const found = new Map<string, T>();
    let next: string | undefined;
    let version = "";
    do {
      const page = await list({
        limit: pageSize,
        ...(next === undefined || next === "" ? {} : { _continue: next }),
        ...this.#selectors,
      });
      for (const object of page.items) found.set(object.metadata?.uid ?? "", object);
      next = page.metadata?._continue;
      version = page.metadata?.resourceVersion ?? "";
    } while (next !== undefined && next !== "" && !this.#stop.signal.aborted);
    if (this.#stop.signal.aborted) return;
    for (const [uid, object] of this.#objects) {
      if (!found.has(uid)) this.#put(object, true);
    }
    for (const [uid, object] of found) {
      if (this.#objects.get(uid)?.metadata?.resourceVersion !== object.metadata?.resourceVersion) {
        this.#put(object, false);
      }
    }
    this.#resourceVersion = version;
    this.#isSynced = true;
    this.#markSynced();
  }

  async #watchOnce(): Promise<void> {
    const { cluster, path } = this.#options;
    const { signal } = this.#stop;
    let failure: Error | undefined;
    await new Promise<void>((resolve, reject) => {
      const parameters = {
        resourceVersion: this.#resourceVersion,
        allowWatchBookmarks: true,
        // Varied, so that not all replicas retry at the same time.
        timeoutSeconds: 240 + Math.floor(Math.random() * 120),
        ...this.#selectors,
      };
      const onEvent = (
        type: string,
        object: T & { readonly code?: number; readonly message?: string },
      ): void => {
        this.#events += 1;
        // The library discards exceptions thrown here.
        if (type === "ERROR") {
          failure ??=
            object.code === 410 ? new VersionForgotten() : new Error(object.message ?? "the watch failed");
        } else {
          this.#resourceVersion = object.metadata?.resourceVersion ?? this.#resourceVersion;
          this.#failures = 0;
          if (type !== "BOOKMARK") this.#put(object, type === "DELETED");
        }
      };
      const onDone = (error: unknown): void => {
        const reason = failure ?? error;
        const isQuiet = reason instanceof DOMException && reason.name === "TimeoutError";
        if (reason === undefined || reason === null || isQuiet) resolve();
        else reject(reason instanceof Error ? withStatus(reason) : new Error("the watch failed"));
      };
      cluster.watch.watch(path, parameters, onEvent, onDone).then((controller) => {
        signal.addEventListener("abort", () => controller.abort(), { once: true });
        if (signal.aborted) controller.abort();
      }, reject);
    });
  }

  #put(object: T, isGone: boolean): void {
    const uid = object.metadata?.uid ?? "";
    if (isGone) this.#objects.delete(uid);
    else this.#objects.set(uid, object);
    try {
      this.#options.onChange(object, isGone);
    } catch (error) {
      this.#options.log.error({ err: error, path: this.#options.path }, "a change was not adopted");
    }
  }
}

/** The server no longer has the events since the known version. */
class VersionForgotten extends Error {
  constructor() {
    super("the server has forgotten the version that was watched from");
  }
}

class WatchTooShort extends Error {
  constructor() {
    super("the watch ended at once, with nothing");
  }
}

function withStatus(error: Error): Error {
  return "statusCode" in error && error.statusCode === 410 ? new VersionForgotten() : error;
}
