// SPDX-License-Identifier: Apache-2.0

// The plugin of a node, for the way in which the operator gives pods their vGPUs.

import { existsSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { type Allocation, hasResourceClaims } from "../allocation.ts";
import { describeFailure } from "../cluster/cluster.ts";
import { DevicePlugin, type DevicePluginOptions, socketName } from "./device-plugin.ts";
import { DraPlugin, type DraPluginOptions } from "./dra-plugin.ts";

export interface NodePluginOptions extends DraPluginOptions, DevicePluginOptions {
  readonly allocation: Allocation | "auto";
  /** How long the operator has to publish the pool before a node offers slots to the scheduler. Default 10,000. */
  readonly patienceMs?: number;
  /** Interval between checks whether it has. Default 2000. */
  readonly lookMs?: number;
}

/**
 * `auto`: only the operator can determine whether claims can share devices in this cluster, and if so it publishes the
 * pool as ResourceSlices. If there are none, the node also has a device plugin.
 */
export class NodePlugin implements AsyncDisposable {
  readonly #options: NodePluginOptions;
  readonly #stop = new AbortController();
  #dra: DraPlugin | undefined;
  #devices: DevicePlugin | undefined;
  #following: Promise<void> = Promise.resolve();

  private constructor(options: NodePluginOptions) {
    this.#options = options;
  }

  static async start(options: NodePluginOptions): Promise<NodePlugin> {
    const plugin = new NodePlugin(options);
    const { allocation, cluster, names } = options;
    const hasClaims = allocation === "auto" ? await hasResourceClaims(cluster, names) : allocation === "dra";
    if (hasClaims) plugin.#dra = await DraPlugin.start(options);
    if (!hasClaims) plugin.#devices = DevicePlugin.start(options);
    else if (allocation === "auto") plugin.#following = plugin.#follow();
    return plugin;
  }

  /** Resolves when the kubelet has registered the plugin for ResourceClaims, if there is one. */
  get registered(): Promise<void> {
    return this.#dra?.registered ?? Promise.resolve();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#following;
    await this.#devices?.[Symbol.asyncDispose]();
    await this.#dra?.[Symbol.asyncDispose]();
  }

  async #follow(): Promise<void> {
    const { cluster, names, kubeletDirectory, log, patienceMs = 10_000, lookMs = 2000 } = this.#options;
    const { signal } = this.#stop;
    const fieldSelector = `spec.driver=${names.domain}`;
    // A plugin that served here before had pods that need the plugin immediately.
    const served = existsSync(join(kubeletDirectory, "device-plugins", socketName));
    const beginMs = performance.now() + (served ? 0 : patienceMs);
    while (!signal.aborted) {
      try {
        const { items } = await cluster.resource.listResourceSlice({ fieldSelector, limit: 1 });
        if (items.length > 0) {
          await this.#devices?.[Symbol.asyncDispose]();
          this.#devices = undefined;
          return;
        }
        if (this.#devices === undefined && performance.now() >= beginMs) {
          log.info("the pool is not published as ResourceSlices: the node has a device plugin");
          this.#devices = DevicePlugin.start(this.#options);
        }
      } catch (error) {
        log.warn({ failure: describeFailure(error) }, "ResourceSlices cannot be read, and will be again");
      }
      await delay(lookMs, undefined, { signal }).catch(() => undefined);
    }
  }
}
