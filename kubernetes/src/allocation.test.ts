// SPDX-License-Identifier: Apache-2.0

import { describe, expect, test } from "vitest";
import { chooseAllocation } from "./allocation.ts";
import { makeResourceNames } from "./request/resource-names.ts";
import { ControlPlane, findKubernetes, withKubernetes } from "./testing/control-plane.ts";
import { PlayedCluster } from "./testing/played/played-cluster.ts";
import { withoutSharedDevices } from "./testing/real-cluster.ts";
import { TestCluster } from "./testing/test-cluster.ts";

const names = makeResourceNames();

test("a cluster whose claims can share devices has ResourceClaims, and the trial leaves nothing", async () => {
  await using cluster = await PlayedCluster.start({});
  const operator = await cluster.connectAs("millpond-operator");
  expect(await chooseAllocation("auto", operator, names)).toBe("dra");
  expect(await chooseAllocation("device-plugin", operator, names)).toBe("device-plugin");
  expect(cluster.server.store.list("resource.k8s.io/resourceslices")).toEqual([]);
});

describe.skipIf(findKubernetes() === undefined)(`with a real control plane${withKubernetes}`, () => {
  test("the feature decides, not the version alone", async ({ skip }) => {
    await using cluster = await TestCluster.start({});
    skip(cluster.minor < 36, `Kubernetes 1.${cluster.minor} has the feature off by default, or not at all`);
    expect(await chooseAllocation("auto", await cluster.connectAs("millpond-operator"), names)).toBe("dra");
    const { items } = await cluster.plane.cluster.resource.listResourceSlice();
    expect(items).toEqual([]);
    await using without = await ControlPlane.start({ apiServer: withoutSharedDevices });
    expect(await chooseAllocation("auto", without.cluster, names)).toBe("device-plugin");
    await without.kill("kube-scheduler");
    await using none = await ControlPlane.start({ apiServer: ["--runtime-config=resource.k8s.io/v1=false"] });
    expect(await chooseAllocation("auto", none.cluster, names)).toBe("device-plugin");
  });
});
