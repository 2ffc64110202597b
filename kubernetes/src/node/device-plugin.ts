// SPDX-License-Identifier: Apache-2.0

// The device plugin for clusters without consumable capacity. Every node offers more vGPUs than pods can request,
// because vGPUs belong to the pool, not to the node: the pool decides which ones a pod's claim gets, and when. The
// plugin itself only injects the client library.

import { existsSync, statSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { createClient } from "@connectrpc/connect";
import type { Logger } from "pino";
import { DevicePlugin as DevicePluginService, Registration } from "../gen/kubelet/deviceplugin_v1beta1_pb.ts";
import type { ResourceNames } from "../request/resource-names.ts";
import type { ClientLibrary } from "./client-library.ts";
import { UnixGrpcServer, unixGrpcTransport } from "./unix-grpc.ts";

export interface DevicePluginOptions {
  readonly names: ResourceNames;
  readonly library: ClientLibrary;
  /** `/var/lib/kubelet`. */
  readonly kubeletDirectory: string;
  /** The most vGPUs that pods of this node can have together. */
  readonly slots: number;
  readonly log: Logger;
  /** Interval between checks whether the kubelet has restarted. Default 1000 ms. */
  readonly checkMs?: number;
}

/** Name of the socket in the kubelet's directory for device plugins. */
export const socketName = "millpond.sock";

export class DevicePlugin implements AsyncDisposable {
  readonly #options: DevicePluginOptions;
  readonly #stop = new AbortController();
  #server: UnixGrpcServer | undefined;
  #kubelet = "";
  #watching: Promise<void> = Promise.resolve();

  private constructor(options: DevicePluginOptions) {
    this.#options = options;
  }

  /** Registers with the kubelet as soon as it exists, and again whenever it restarts. */
  static start(options: DevicePluginOptions): DevicePlugin {
    const plugin = new DevicePlugin(options);
    plugin.#watching = plugin.#keepRegistered();
    return plugin;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#watching;
    await this.#server?.[Symbol.asyncDispose]();
  }

  async #keepRegistered(): Promise<void> {
    const { log, checkMs = 1000 } = this.#options;
    const { signal } = this.#stop;
    while (!signal.aborted) {
      try {
        const kubelet = identify(join(this.#directory, "kubelet.sock"));
        const isServed = this.#server !== undefined && existsSync(this.#server.path);
        // A starting kubelet removes all sockets of the directory.
        if (kubelet !== undefined && (!isServed || kubelet !== this.#kubelet)) {
          await this.#server?.[Symbol.asyncDispose]();
          this.#server = await this.#serve();
          await this.#register();
          this.#kubelet = kubelet;
          log.info({ resource: this.#resource }, "registered with the kubelet");
        }
      } catch (error) {
        this.#kubelet = "";
        log.warn({ err: error }, "registering with the kubelet again");
      }
      await delay(checkMs, undefined, { signal }).catch(() => undefined);
    }
  }

  get #directory(): string {
    return join(this.#options.kubeletDirectory, "device-plugins");
  }

  get #resource(): string {
    return this.#options.names.resources.vgpu[0] ?? "";
  }

  async #register(): Promise<void> {
    const kubelet = createClient(Registration, unixGrpcTransport(join(this.#directory, "kubelet.sock")));
    await kubelet.register(
      { version: "v1beta1", endpoint: socketName, resourceName: this.#resource, options: {} },
      { timeoutMs: 10_000 },
    );
  }

  #serve(): Promise<UnixGrpcServer> {
    const { library, slots } = this.#options;
    const devices = Array.from({ length: slots }, (_, index) => ({ ID: `slot-${index}`, health: "Healthy" }));
    const mounts = library.mounts.map(({ hostPath, containerPath }) => ({
      hostPath,
      containerPath,
      readOnly: true,
    }));
    const stopped = new Promise<void>((resolve) => {
      this.#stop.signal.addEventListener("abort", () => resolve(), { once: true });
    });
    return UnixGrpcServer.listen(join(this.#directory, socketName), (router) => {
      router.service(DevicePluginService, {
        getDevicePluginOptions: () => ({}),
        async *listAndWatch(_request, { signal }) {
          yield { devices };
          // The devices never change: the stream only shows that the plugin is alive.
          await Promise.race([
            stopped,
            new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve(), { once: true })),
          ]);
        },
        allocate: ({ containerRequests }) => ({
          containerResponses: containerRequests.map(() => ({ mounts })),
        }),
        getPreferredAllocation: () => ({}),
        preStartContainer: () => ({}),
      });
    });
  }
}

/** Identity of the kubelet's socket, which changes when the kubelet restarts; undefined: the socket does not exist. */
function identify(path: string): string | undefined {
  const found = statSync(path, { throwIfNoEntry: false });
  return found === undefined ? undefined : `${found.ino} ${found.ctimeMs}`;
}
