// SPDX-License-Identifier: Apache-2.0

import { create } from "@bufbuild/protobuf";
import { DeviceHealth, NodeSchema } from "@millpond/api";
import { expect, onTestFinished, test } from "vitest";
import { asMergePatch, connectCluster } from "../cluster/cluster.ts";
import { makeResourceNames } from "../request/resource-names.ts";
import { readManifests } from "../testing/manifests.ts";
import { PlayedApiServer } from "../testing/played/api-server.ts";
import { testLog } from "../testing/test-pool.ts";
import { SlicePublisher } from "./resource-slices.ts";

const nodes = ["a", "b"].map((name) =>
  create(NodeSchema, {
    name,
    devices: [{ index: 0, uuid: `GPU-${name}`, memoryBytes: 16n << 30n, health: DeviceHealth.HEALTHY }],
  }),
);

test("a slice that somebody deletes or changes is published again, and the others stay as they are", async () => {
  const server = await PlayedApiServer.start(readManifests("base"));
  onTestFinished(() => server[Symbol.asyncDispose]());
  const { resource } = server.cluster;
  const cluster = connectCluster(server.configFor("millpond-operator"));
  const make = (readAgainMs: number) =>
    new SlicePublisher({ cluster, names: makeResourceNames(), log: testLog, readAgainMs });
  const publisher = make(0);
  await publisher.publish(nodes);
  const slices = async () =>
    Object.fromEntries(
      (await resource.listResourceSlice()).items.map(({ metadata, spec }) => [
        metadata?.name,
        spec.devices?.length,
      ]),
    );
  const both = { "millpond-dev-a": 1, "millpond-dev-b": 1 };
  expect(await slices()).toEqual(both);
  const versionOf = async (name: string) =>
    (await resource.readResourceSlice({ name })).metadata?.resourceVersion;
  const version = await versionOf("millpond-dev-b");
  await resource.deleteResourceSlice({ name: "millpond-dev-a" });
  await publisher.publish(nodes);
  expect(await slices()).toEqual(both);
  expect(await versionOf("millpond-dev-b")).toBe(version);
  const body = { spec: { devices: [] } };
  await resource.patchResourceSlice({ name: "millpond-dev-a", body }, asMergePatch);
  await publisher.publish(nodes);
  expect(await slices()).toEqual(both);
  // Not with every read of the pool, which happens every few seconds.
  const patient = make(600_000);
  await patient.publish(nodes);
  await resource.deleteResourceSlice({ name: "millpond-dev-a" });
  await patient.publish(nodes);
  expect(await slices()).toEqual({ "millpond-dev-b": 1 });
  expect(server.denied).toEqual([]);
});
