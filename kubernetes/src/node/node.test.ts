// SPDX-License-Identifier: Apache-2.0

import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createClient } from "@connectrpc/connect";
import { ApiException, type CustomObjectsApi } from "@kubernetes/client-node";
import { describe, expect, onTestFinished, test } from "vitest";
import { DevicePlugin as DevicePluginService, Registration } from "../gen/kubelet/deviceplugin_v1beta1_pb.ts";
import { DRAResourceHealth, HealthStatus } from "../gen/kubelet/dra_health_v1alpha1_pb.ts";
import { DRAPlugin } from "../gen/kubelet/dra_v1_pb.ts";
import { DRAPlugin as DRAPluginBeta } from "../gen/kubelet/dra_v1beta1_pb.ts";
import { Registration as PluginRegistration } from "../gen/kubelet/registration_pb.ts";
import { makeResourceNames } from "../request/resource-names.ts";
import { findKubernetes, withKubernetes } from "../testing/control-plane.ts";
import { TestCluster } from "../testing/test-cluster.ts";
import { testLog } from "../testing/test-pool.ts";
import { installClientLibrary, toCdi, withSockets } from "./client-library.ts";
import { DevicePlugin } from "./device-plugin.ts";
import { DraPlugin } from "./dra-plugin.ts";
import { UnixGrpcServer, unixGrpcTransport } from "./unix-grpc.ts";
import { isUninstalled, removeTraces } from "./uninstall.ts";

function makeDirectory(): string {
  const directory = mkdtempSync(join(tmpdir(), "mp-node-"));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  return directory;
}

function makeLibrary(directory: string, content = "one") {
  const source = join(directory, "source");
  mkdirSync(source, { recursive: true });
  writeFileSync(join(source, "libcuda.so.1"), content);
  writeFileSync(join(source, "libmillpond-tls.so"), "tls");
  writeFileSync(join(source, "README"), "not a library");
  return installClientLibrary(source, join(directory, "install"), "/var/lib/millpond/client");
}

test("the client library is installed once for each content, and an older one stays for its containers", () => {
  const directory = makeDirectory();
  const first = makeLibrary(directory);
  expect(makeLibrary(directory)).toEqual(first);
  const second = makeLibrary(directory, "two");
  expect(second.version).not.toBe(first.version);
  const install = join(directory, "install");
  expect(readdirSync(install).sort()).toEqual([first.version, second.version].sort());
  expect(readFileSync(join(install, first.version, "libcuda.so.1"), "utf8")).toBe("one");
  expect(readdirSync(join(install, second.version)).sort()).toEqual(["libcuda.so.1", "libmillpond-tls.so"]);
  expect(first.mounts.map(({ containerPath }) => containerPath)).toEqual([
    "/usr/lib/millpond",
    "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
    "/usr/lib/x86_64-linux-gnu/libmillpond-tls.so",
    "/usr/lib64/libcuda.so.1",
    "/usr/lib64/libmillpond-tls.so",
  ]);
  expect(first.mounts[1]?.hostPath).toBe(`/var/lib/millpond/client/${first.version}/libcuda.so.1`);
  const sockets = join(directory, "run", "sockets");
  expect(withSockets(makeLibrary(directory), sockets).mounts.at(-1)).toEqual({
    hostPath: sockets,
    containerPath: sockets,
  });
  expect(existsSync(sockets)).toBe(true);
  expect(() => installClientLibrary(join(directory, "nowhere"), install)).toThrow(/MILLPOND_E_NOT_INSTALLED/);
});

test("when Millpond is uninstalled its files leave the host, and those of others stay", async () => {
  const directory = makeDirectory();
  const { version } = makeLibrary(directory);
  const cdi = join(directory, "cdi");
  mkdirSync(cdi);
  for (const name of [`millpond.dev-client-${version}.json`, "nvidia.json", "millpond.dev-other.json"])
    writeFileSync(join(cdi, name), "{}");
  const install = join(directory, "install");
  writeFileSync(join(install, "notes"), "");
  const paths = { domain: "millpond.dev", installDirectory: install, cdiDirectory: cdi };
  removeTraces(paths);
  expect(readdirSync(cdi).sort()).toEqual(["millpond.dev-other.json", "nvidia.json"]);
  expect(readdirSync(install)).toEqual(["notes"]);
  removeTraces({ ...paths, cdiDirectory: join(directory, "none") });
  const answering = (answer: Promise<unknown>) =>
    isUninstalled(
      { objects: { getNamespacedCustomObject: () => answer } as unknown as CustomObjectsApi },
      "ns",
      "node",
    );
  const failing = (code: number) => Promise.reject(new ApiException(code, "no", {}, {}));
  await expect(answering(Promise.resolve({ metadata: {} }))).resolves.toBe(false);
  await expect(answering(Promise.resolve({ metadata: { deletionTimestamp: new Date() } }))).resolves.toBe(
    true,
  );
  for (const code of [401, 403, 404]) await expect(answering(failing(code))).resolves.toBe(true);
  for (const code of [429, 500]) await expect(answering(failing(code))).resolves.toBe(false);
  await expect(answering(Promise.reject(new Error("connection refused")))).resolves.toBe(false);
});

test("the device plugin registers, lists its slots, gives the library, and registers again with a new kubelet", async () => {
  const directory = makeDirectory();
  const library = makeLibrary(directory);
  const sockets = join(directory, "device-plugins");
  const registered: string[] = [];
  let onRegister = Promise.withResolvers<void>();
  const startKubelet = () =>
    UnixGrpcServer.listen(join(sockets, "kubelet.sock"), (router) => {
      router.service(Registration, {
        register: ({ version, endpoint, resourceName }) => {
          registered.push(`${version} ${endpoint} ${resourceName}`);
          onRegister.resolve();
          return {};
        },
      });
    });
  const options = {
    names: makeResourceNames(),
    library,
    kubeletDirectory: directory,
    slots: 3,
    log: testLog,
    checkMs: 20,
  };
  await using plugin = DevicePlugin.start(options);
  expect(plugin).toBeDefined();
  const kubelet = await startKubelet();
  await onRegister.promise;
  expect(registered).toEqual(["v1beta1 millpond.sock millpond.dev/vgpu"]);
  const client = createClient(DevicePluginService, unixGrpcTransport(join(sockets, "millpond.sock")));
  const stop = new AbortController();
  for await (const { devices } of client.listAndWatch({}, { signal: stop.signal })) {
    expect(devices.map(({ ID, health }) => `${ID} ${health}`)).toEqual([
      "slot-0 Healthy",
      "slot-1 Healthy",
      "slot-2 Healthy",
    ]);
    break;
  }
  stop.abort();
  const { containerResponses } = await client.allocate({
    containerRequests: [{ devicesIds: ["slot-1"] }, {}],
  });
  expect(containerResponses.map(({ mounts }) => mounts.length)).toEqual([5, 5]);
  expect(containerResponses[0]?.mounts.every(({ readOnly }) => readOnly)).toBe(true);
  // As a kubelet does when it starts.
  onRegister = Promise.withResolvers();
  await kubelet[Symbol.asyncDispose]();
  rmSync(sockets, { recursive: true });
  await using _again = await startKubelet();
  await onRegister.promise;
  expect(registered).toHaveLength(2);
  expect(existsSync(join(sockets, "millpond.sock"))).toBe(true);
});

describe.skipIf(findKubernetes() === undefined)(`with a real control plane${withKubernetes}`, () => {
  test("the DRA plugin prepares what the operator has made, and nothing else", async ({ skip }) => {
    await using cluster = await TestCluster.start({ "gpu-a": [16n << 30n] });
    skip(cluster.minor < 34, `Kubernetes 1.${cluster.minor} has no ResourceClaims`);
    const directory = makeDirectory();
    const library = makeLibrary(directory);
    await cluster.startOperator();
    await cluster.addNode("worker-1");
    const { resource } = cluster.plane.cluster;
    await using _plugin = await DraPlugin.start({
      cluster: await cluster.connectAs("millpond-node"),
      names: cluster.names,
      library,
      kubeletDirectory: directory,
      cdiDirectory: join(directory, "cdi"),
      log: testLog,
    });
    const registration = createClient(
      PluginRegistration,
      unixGrpcTransport(join(directory, "plugins_registry", "millpond.dev-reg.sock")),
    );
    const info = await registration.getInfo({});
    expect(info).toMatchObject({ type: "DRAPlugin", name: "millpond.dev" });
    expect(info.supportedVersions).toEqual([
      "v1.DRAPlugin",
      "v1beta1.DRAPlugin",
      "v1alpha1.DRAResourceHealth",
    ]);
    await registration.notifyRegistrationStatus({ pluginRegistered: true });

    await cluster.createPod("one", { "millpond.dev/vgpu": "1", "millpond.dev/memory": "1Gi" });
    await cluster.until("it is bound", async () => (await cluster.pod("one"))?.spec?.nodeName === "worker-1");
    const { items } = await resource.listNamespacedResourceClaim({ namespace: "default" });
    const { name = "", uid = "" } = items[0]?.metadata ?? {};
    const results = items[0]?.status?.allocation?.devices?.results ?? [];
    expect(results[0]).toMatchObject({
      driver: "millpond.dev",
      pool: "gpu-a",
      device: "gpu-0",
      request: "gpu-0",
    });
    expect(results[0]?.consumedCapacity).toMatchObject({ memory: "1Gi", cores: "7" });
    const client = createClient(DRAPlugin, unixGrpcTransport(info.endpoint));
    const claim = { namespace: "default", name, uid };
    const { claims } = await client.nodePrepareResources({ claims: [claim] });
    expect(claims[uid]).toMatchObject({
      error: "",
      devices: [
        { requestNames: ["gpu-0"], poolName: "gpu-a", deviceName: "gpu-0", shareId: results[0]?.shareID },
      ],
    });
    const { deviceId, fileName, specification } = toCdi("millpond.dev", library);
    expect(claims[uid]?.devices[0]?.cdiDeviceIds).toEqual([deviceId]);
    expect(JSON.parse(readFileSync(join(directory, "cdi", fileName), "utf8"))).toEqual(specification);
    const beta = createClient(DRAPluginBeta, unixGrpcTransport(info.endpoint));
    expect((await beta.nodePrepareResources({ claims: [claim] })).claims[uid]?.error).toBe("");
    expect((await client.nodeUnprepareResources({ claims: [claim] })).claims[uid]?.error).toBe("");

    const request = {
      name: "gpu",
      exactly: { deviceClassName: "millpond.dev", allocationMode: "ExactCount", count: 1 },
    };
    const own = await resource.createNamespacedResourceClaim({
      namespace: "default",
      body: { metadata: { name: "own" }, spec: { devices: { requests: [request] } } },
    });
    const refusedClaims = [
      { namespace: "default", name: "own", uid: own.metadata?.uid ?? "" },
      { namespace: "default", name, uid: "another" },
      { namespace: "default", name: "none", uid: "none" },
    ];
    const refused = await client.nodePrepareResources({ claims: refusedClaims });
    expect(refused.claims[own.metadata?.uid ?? ""]?.error).toMatch(
      /the pool has not granted .*the operator has not asked it yet/,
    );
    expect(refused.claims["another"]?.error).toMatch(/is another one by now/);
    expect(refused.claims["none"]?.error).toMatch(/cannot be read: .*not found/);

    const health = createClient(DRAResourceHealth, unixGrpcTransport(info.endpoint));
    const stop = new AbortController();
    const seen: HealthStatus[] = [];
    for await (const { devices } of health.nodeWatchResources({}, { signal: stop.signal })) {
      seen.push(devices[0]?.health ?? HealthStatus.UNKNOWN);
      if (seen.length === 1) await resource.deleteResourceSlice({ name: "millpond-dev-gpu-a" });
      if (seen.at(-1) === HealthStatus.UNHEALTHY) break;
    }
    stop.abort();
    expect(seen[0]).toBe(HealthStatus.HEALTHY);
  });
});

test("the messages of a kubelet's API are generated from the description", async () => {
  const { execFileSync } = await import("node:child_process");
  const root = join(import.meta.dirname, "..", "..");
  const directory = makeDirectory();
  const tools = join(root, "..", "node_modules", ".bin");
  execFileSync(join(tools, "buf"), ["generate", "--output", directory], {
    cwd: root,
    env: { ...process.env, PATH: `${tools}:${process.env["PATH"] ?? ""}` },
  });
  const committed = join(root, "src", "gen", "kubelet");
  const fresh = join(directory, "src", "gen", "kubelet");
  expect(readdirSync(committed).sort()).toEqual(readdirSync(fresh).sort());
  for (const name of readdirSync(fresh)) {
    expect(readFileSync(join(committed, name), "utf8"), name).toBe(readFileSync(join(fresh, name), "utf8"));
  }
});
