// SPDX-License-Identifier: Apache-2.0

import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { Registration } from "../gen/kubelet/deviceplugin_v1beta1_pb.ts";
import { makeResourceNames } from "../request/resource-names.ts";
import { PlayedCluster } from "../testing/played/played-cluster.ts";
import { testLog } from "../testing/test-pool.ts";
import { installClientLibrary } from "./client-library.ts";
import { NodePlugin } from "./node-plugin.ts";
import { UnixGrpcServer } from "./unix-grpc.ts";

const GiB = 1n << 30n;
const patience = { timeout: 60_000 };

test("a node has a device plugin for as long as the operator publishes no devices", async () => {
  const cluster = await PlayedCluster.start({ "gpu-a": [16n * GiB] });
  onTestFinished(() => cluster[Symbol.asyncDispose]());
  const directory = mkdtempSync(join(tmpdir(), "mp-node-"));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  mkdirSync(join(directory, "source"));
  writeFileSync(join(directory, "source", "libcuda.so.1"), "");
  const registered: string[] = [];
  await using _kubelet = await UnixGrpcServer.listen(
    join(directory, "device-plugins", "kubelet.sock"),
    (router) => {
      router.service(Registration, {
        register: ({ resourceName }) => {
          registered.push(resourceName);
          return {};
        },
      });
    },
  );
  const start = async (patienceMs: number) =>
    await NodePlugin.start({
      allocation: "auto",
      cluster: await cluster.connectAs("millpond-node"),
      names: makeResourceNames(),
      library: installClientLibrary(join(directory, "source"), join(directory, "client")),
      kubeletDirectory: directory,
      cdiDirectory: join(directory, "cdi"),
      slots: 1,
      log: testLog,
      checkMs: 20,
      patienceMs,
      lookMs: 20,
    });
  const first = await start(100);
  await expect.poll(() => registered, patience).toEqual(["millpond.dev/vgpu"]);
  // The operator detects that claims can share devices.
  await cluster.startOperator();
  const slices = () => cluster.server.store.list("resource.k8s.io/resourceslices").length;
  await expect.poll(slices, patience).toBe(1);
  const isServed = () => existsSync(join(directory, "device-plugins", "millpond.sock"));
  await expect.poll(isServed, patience).toBe(false);
  await first[Symbol.asyncDispose]();
  await using _second = await start(0);
  await new Promise((resolve) => setTimeout(resolve, 500));
  expect(registered).toEqual(["millpond.dev/vgpu"]);
});
