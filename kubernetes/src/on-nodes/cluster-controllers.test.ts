// SPDX-License-Identifier: Apache-2.0

// What Kubernetes' controllers, its scheduler and administrators do to pods on a real node, besides running them: replace, evict,
// adopt, orphan and refuse them.

import {
  AdmissionregistrationV1Api,
  PolicyV1Api,
  RbacAuthorizationV1Api,
  SchedulingV1Api,
  type V1Container,
  type V1Job,
  type V1PodTemplateSpec,
} from "@kubernetes/client-node";
import { expect, test } from "vitest";
import { asMergePatch, connectCluster } from "../cluster/cluster.ts";
import { describeOnRealNode, type OnRealNode } from "../testing/on-real-node.ts";
import { exampleContainer } from "../testing/real-cluster.ts";
import { endlessCommand, share } from "../testing/real-pods.ts";

const namespace = "default";
const patienceMs = 180_000;
const vectoradd = ["/usr/bin/vectoradd"];

describeOnRealNode("controllers of Kubernetes", { subnet: 12, needsKubectl: true }, (on) => {
  const template = (app: string, containers: V1Container[], more: object = {}): V1PodTemplateSpec => ({
    metadata: { labels: { app }, ...more },
    spec: { terminationGracePeriodSeconds: 0, containers },
  });
  const podsOf = async (app: string) =>
    (await on.cluster.core.listNamespacedPod({ namespace, labelSelector: `app=${app}` })).items;
  const runs = async (app: string) =>
    (await podsOf(app)).filter(
      ({ metadata, status }) => status?.phase === "Running" && metadata?.deletionTimestamp === undefined,
    );
  /** Resolves when this number of pods run, and the pool has a claim for each of them and no other. */
  const expectRunning = (app: string, count: number) =>
    on.cluster.until(
      `${count} of ${app} run, each with its claim`,
      async () => {
        const live = await runs(app);
        const claims = await Promise.all(live.map((pod) => on.pods.claimOf(pod)));
        const all = await on.pods.liveClaims();
        return live.length === count && claims.every((claim) => claim !== undefined) && all.length === count;
      },
      patienceMs,
    );
  const makeJob = (name: string, container: V1Container, spec: Partial<V1Job["spec"]>, annotations = {}) => {
    const own = template(name, [container], { annotations });
    return on.batch.createNamespacedJob({
      namespace,
      body: {
        metadata: { name },
        spec: {
          ...spec,
          template: { ...own, spec: { ...own.spec, containers: [container], restartPolicy: "Never" } },
        },
      },
    });
  };
  const jobOf = async (name: string) => (await on.batch.readNamespacedJob({ namespace, name })).status;
  const expectDone = (name: string, count: number) =>
    on.cluster.until(`${name} is done`, async () => (await jobOf(name))?.succeeded === count, patienceMs);
  const makeDeployment = (name: string, replicas: number, compute: number) =>
    on.apps.createNamespacedDeployment({
      namespace,
      body: {
        metadata: { name },
        spec: {
          replicas,
          selector: { matchLabels: { app: name } },
          template: template(name, [exampleContainer("main", endlessCommand, share(compute))]),
        },
      },
    });
  const removeDeployment = async (name: string) => {
    await on.apps.deleteNamespacedDeployment({ namespace, name });
    await on.pods.noneLeft();
  };

  test("a Job that ignores disruptions goes on after the pool has preempted its pod", async () => {
    const config = on.cluster.plane.cluster.config;
    await config.makeApiClient(SchedulingV1Api).createPriorityClass({
      body: { metadata: { name: "first" }, value: 700 },
    });
    await makeJob(
      "ignores",
      exampleContainer("main", endlessCommand, share(100, 2)),
      {
        backoffLimit: 0,
        podFailurePolicy: {
          rules: [{ action: "Ignore", onPodConditions: [{ type: "DisruptionTarget", status: "True" }] }],
        },
      },
      { "millpond.dev/preemptible": "true", "millpond.dev/grace": "2s" },
    );
    await expectRunning("ignores", 1);
    const before = (await runs("ignores"))[0]?.metadata?.uid;
    await on.pods.make("high", [exampleContainer("main", vectoradd, share(100, 2))], {
      priorityClassName: "first",
    });
    await on.pods.hasPhase("high", "Succeeded");
    await expectRunning("ignores", 1);
    expect((await runs("ignores"))[0]?.metadata?.uid).not.toBe(before);
    const status = await jobOf("ignores");
    expect([status?.failed ?? 0, (status?.conditions ?? []).map(({ type }) => type)]).toEqual([0, []]);
    await on.batch.deleteNamespacedJob({ namespace, name: "ignores", propagationPolicy: "Foreground" });
  });

  test("an indexed Job of more completions than run at a time is a gang until its end", async () => {
    await makeJob(
      "indexed",
      exampleContainer("main", vectoradd, share(60)),
      { completionMode: "Indexed", parallelism: 2, completions: 5 },
      { "millpond.dev/gang-size": "all" },
    );
    await expectDone("indexed", 5);
    expect((await jobOf("indexed"))?.completedIndexes).toBe("0-4");
    await on.batch.deleteNamespacedJob({ namespace, name: "indexed", propagationPolicy: "Background" });
  });

  test("a Job that is suspended and resumed without a pause, as by a queue in front of it, is done", async () => {
    await makeJob("tossed", exampleContainer("main", vectoradd, share(40)), {
      parallelism: 2,
      completions: 4,
    });
    for (let change = 0; change < 12; change += 1) {
      const body = { spec: { suspend: change % 2 === 0 } };
      await on.batch.patchNamespacedJob({ namespace, name: "tossed", body }, asMergePatch);
    }
    await expectDone("tossed", 4);
    await on.batch.deleteNamespacedJob({ namespace, name: "tossed", propagationPolicy: "Background" });
  });

  test("a Job that is made from a CronJob computes, and pods that a deleted Job leaves behind keep their claims", async () => {
    const made = template("nightly", [exampleContainer("main", endlessCommand, share(30))]);
    await on.batch.createNamespacedCronJob({
      namespace,
      body: {
        metadata: { name: "nightly" },
        spec: {
          schedule: "0 3 * * *",
          jobTemplate: {
            spec: { template: { ...made, spec: { containers: [], ...made.spec, restartPolicy: "Never" } } },
          },
        },
      },
    });
    expect(await on.kubectl("create", "job", "now", "--from=cronjob/nightly")).toContain("created");
    await expectRunning("nightly", 1);
    expect(await on.kubectl("delete", "job", "now", "--cascade=orphan")).toContain("deleted");
    await on.cluster.until("its pod has no owner", async () => {
      const [pod] = await runs("nightly");
      return pod !== undefined && (pod.metadata?.ownerReferences ?? []).length === 0;
    });
    await expectRunning("nightly", 1);
    await on.batch.deleteNamespacedCronJob({ namespace, name: "nightly" });
  });

  test("a DaemonSet has its pod on the node, also after it was rolled out again", async () => {
    const body = {
      metadata: { name: "each" },
      spec: {
        selector: { matchLabels: { app: "each" } },
        template: template("each", [exampleContainer("main", endlessCommand, share(30))]),
      },
    };
    await on.apps.createNamespacedDaemonSet({ namespace, body });
    await expectRunning("each", 1);
    const before = (await runs("each"))[0]?.metadata?.uid;
    expect(await on.kubectl("rollout", "restart", "daemonset/each")).toContain("restarted");
    await on.cluster.until("it has another", async () => {
      const [pod] = await runs("each");
      return pod !== undefined && pod.metadata?.uid !== before;
    });
    await expectRunning("each", 1);
    await on.apps.deleteNamespacedDaemonSet({ namespace, name: "each" });
  });

  test("pods that are deleted at any moment of their way leave nothing", async () => {
    let seed = 36;
    const random = (): number => (seed = (seed * 48_271) % 2_147_483_647) / 2_147_483_647;
    const live = Array.from({ length: 24 }, async (_, index) => {
      const name = `brief-${index}`;
      await on.pods.make(name, [exampleContainer("main", endlessCommand, share(20))]);
      await new Promise((resolve) => setTimeout(resolve, random() * 6000));
      const grace = random() < 0.4 ? 0 : 1;
      await on.cluster.core.deleteNamespacedPod({ namespace, name, gracePeriodSeconds: grace });
    });
    await Promise.all(live);
    await on.pods.noneLeft();
    const { resource } = on.cluster.plane.cluster;
    await on.cluster.until(
      "no object of theirs is left",
      async () => {
        const kept = [
          ...(await on.cluster.core.listNamespacedSecret({ namespace })).items,
          ...(on.allocation === "dra"
            ? (await resource.listNamespacedResourceClaim({ namespace })).items
            : []),
          ...(await on.cluster.core.listNamespacedPod({ namespace })).items,
        ];
        return kept.length === 0;
      },
      patienceMs,
    );
  });

  test("an eviction that a budget forbids takes nothing from a pod, and one that it allows gives all back", async () => {
    await makeDeployment("guarded", 1, 40);
    await expectRunning("guarded", 1);
    const budgets = on.cluster.plane.cluster.config.makeApiClient(PolicyV1Api);
    await budgets.createNamespacedPodDisruptionBudget({
      namespace,
      body: {
        metadata: { name: "guarded" },
        spec: { minAvailable: 1, selector: { matchLabels: { app: "guarded" } } },
      },
    });
    const drain = () => on.kubectl("drain", "worker-a", "--ignore-daemonsets", "--timeout=8s");
    await on.cluster.until("the budget holds", async () => {
      const { status } = await budgets.readNamespacedPodDisruptionBudget({ namespace, name: "guarded" });
      return status?.expectedPods === 1;
    });
    expect(await drain()).toMatch(/disruption budget|global timeout/);
    await expectRunning("guarded", 1);
    await budgets.deleteNamespacedPodDisruptionBudget({ namespace, name: "guarded" });
    expect(await drain()).not.toMatch(/error/);
    expect(await runs("guarded")).toEqual([]);
    await on.kubectl("uncordon", "worker-a");
    await expectRunning("guarded", 1);
    await removeDeployment("guarded");
  });

  test("pods that a taint drives off give back what they held, and run again when it is gone", async () => {
    await makeDeployment("driven", 2, 40);
    await expectRunning("driven", 2);
    expect(await on.kubectl("taint", "node", "worker-a", "example.org/broken=yes:NoExecute")).toContain(
      "tainted",
    );
    await on.cluster.until("none runs", async () => (await runs("driven")).length === 0, patienceMs);
    await on.kubectl("taint", "node", "worker-a", "example.org/broken-");
    await expectRunning("driven", 2);
    await removeDeployment("driven");
  });

  test("a pod that Kubernetes' scheduler preempts for its CPUs gives back its vGPU", async () => {
    const { status } = await on.cluster.core.readNode({ name: "worker-a" });
    const cpu = String(Math.floor((Number(status?.allocatable?.["cpu"]) * 1000 * 2) / 3));
    const container = (command: readonly string[]) => {
      const one = exampleContainer("main", command, share(50));
      return { ...one, resources: { ...one.resources, requests: { cpu: `${cpu}m` } } };
    };
    const scheduling = on.cluster.plane.cluster.config.makeApiClient(SchedulingV1Api);
    await scheduling.createPriorityClass({ body: { metadata: { name: "foremost" }, value: 900 } });
    const low = await on.pods.make("low", [container(endlessCommand)]);
    await on.pods.hasPhase("low", "Running");
    await on.pods.make("high", [container(vectoradd)], { priorityClassName: "foremost" });
    await on.pods.hasPhase("high", "Succeeded");
    expect(await on.pods.claimOf(low)).toBeUndefined();
    expect(await on.cluster.pod("low")).toBeUndefined();
  });

  test("a drain of the pool's node ends its pods with notice, and those that replace them run after it", async () => {
    await makeDeployment("moved", 2, 40);
    await expectRunning("moved", 2);
    const { nodes } = await on.real.pool.pool.listNodes({});
    const name = nodes[0]?.name ?? "";
    await on.real.pool.pool.drainNode({ name, reason: "a new driver" });
    await on.cluster.until(
      "all wait, and say why",
      async () => {
        const pods = await podsOf("moved");
        const reasons = await Promise.all(pods.map(({ metadata }) => on.pods.reasonOf(metadata?.name ?? "")));
        return (
          pods.length === 2 &&
          (await runs("moved")).length === 0 &&
          reasons.every((why) => /cordon|drain/.test(why))
        );
      },
      patienceMs,
    );
    await on.real.pool.pool.cordonNode({ name, cordoned: false, reason: "" });
    await expectRunning("moved", 2);
    await removeDeployment("moved");
  });

  test("a node that is deleted and joins again under its name has its pods again, each with a claim", async () => {
    await makeDeployment("rejoined", 2, 40);
    await expectRunning("rejoined", 2);
    await on.cluster.core.deleteNode({ name: "worker-a" });
    on.real.node.killKubelet();
    await on.cluster.until(
      "it is there again",
      async () => {
        const { status } = await on.cluster.core.readNode({ name: "worker-a" });
        return status?.conditions?.some(({ type, status: is }) => type === "Ready" && is === "True") === true;
      },
      patienceMs,
    );
    await expectRunning("rejoined", 2);
    await on.pods.make("next", [exampleContainer("main", vectoradd, share(20))]);
    await on.pods.hasPhase("next", "Succeeded");
    await removeDeployment("rejoined");
  });

  test("a pod whose containers are all started again in place computes in the claims that it had", async (context) => {
    if (on.cluster.minor < 36) context.skip("containers are not started again together");
    const script =
      "test -e /state/again && exec /usr/bin/vectoradd; /usr/bin/vectoradd && touch /state/again; exit 42";
    const volumeMounts = [{ name: "state", mountPath: "/state" }];
    const main = {
      ...exampleContainer("main", ["/bin/sh", "-c", script], share(30)),
      volumeMounts,
      restartPolicy: "Never",
      restartPolicyRules: [{ action: "RestartAllContainers", exitCodes: { operator: "In", values: [42] } }],
    };
    const beside = exampleContainer("beside", endlessCommand, share(20));
    await on.pods.make("again", [main, beside], {
      volumes: [{ name: "state", emptyDir: {} }],
      initContainers: [exampleContainer("first", vectoradd, share(30))],
    });
    const statusOf = async (container: string) =>
      (await on.cluster.pod("again"))?.status?.containerStatuses?.find(({ name }) => name === container);
    await on.cluster.until(
      "both run or have run",
      async () => (await statusOf("beside"))?.state?.running !== undefined,
    );
    const epochs = async () =>
      (await on.pods.liveClaims()).map(({ name, allocation }) => `${name} ${allocation?.epoch}`).sort();
    const before = await epochs();
    await on.cluster.until(
      "its program has ended well",
      async () => (await statusOf("main"))?.state?.terminated?.exitCode === 0,
      patienceMs,
    );
    expect(await on.pods.logOf("again")).toMatch(/vectoradd: OK/);
    await on.cluster.until(
      "the other runs",
      async () => (await statusOf("beside"))?.state?.running !== undefined,
    );
    expect((await statusOf("beside"))?.restartCount).toBeGreaterThan(0);
    expect(await epochs()).toEqual(before);
  });

  test("a pod with resources of its own, besides those of its containers, computes", async (context) => {
    if (on.cluster.minor < 34) context.skip("pods have no resources of their own");
    await on.pods.make("level", [exampleContainer("main", vectoradd, share(25))], {
      resources: { requests: { cpu: "100m" }, limits: { cpu: "500m", memory: "512Mi" } },
    });
    await on.pods.hasPhase("level", "Succeeded");
    expect(await on.pods.logOf("level")).toMatch(/vectoradd: OK/);
  });

  test("a user who may only create pods gets a vGPU, and sees nothing of how", async () => {
    const at = "narrow";
    await on.pods.makeNamespace(at);
    const user = await limitedUser(on, at);
    const body = {
      metadata: { name: "own" },
      spec: {
        restartPolicy: "Never",
        automountServiceAccountToken: false,
        containers: [exampleContainer("main", vectoradd, share(25))],
      },
    };
    await user.core.createNamespacedPod({ namespace: at, body });
    await on.pods.hasPhase("own", "Succeeded", at);
    expect(await on.pods.logOf("own", "main", at)).toMatch(/vectoradd: OK/);
    const id = (await on.cluster.pod("own", at))?.metadata?.annotations?.["millpond.dev/id"];
    await expect(user.core.readNamespacedSecret({ namespace: at, name: `millpond-${id}` })).rejects.toThrow(
      /forbidden/,
    );
    await on.cluster.core.deleteNamespace({ name: at });
  });

  test("a pod whose Secret a policy of the cluster refuses says so, and runs when the policy is gone", async (context) => {
    if (on.cluster.minor < 30) context.skip("there are no such policies");
    const at = "governed";
    await on.pods.makeNamespace(at);
    const policies = on.cluster.plane.cluster.config.makeApiClient(AdmissionregistrationV1Api);
    const rule = { apiGroups: [""], apiVersions: ["v1"], operations: ["CREATE"], resources: ["secrets"] };
    await policies.createValidatingAdmissionPolicy({
      body: {
        metadata: { name: "labelled" },
        spec: {
          failurePolicy: "Fail",
          matchConstraints: { resourceRules: [rule] },
          validations: [
            {
              expression: "has(object.metadata.labels) && 'team' in object.metadata.labels",
              message: "label team",
            },
          ],
        },
      },
    });
    await policies.createValidatingAdmissionPolicyBinding({
      body: {
        metadata: { name: "labelled" },
        spec: {
          policyName: "labelled",
          validationActions: ["Deny"],
          matchResources: { namespaceSelector: { matchLabels: { "kubernetes.io/metadata.name": at } } },
        },
      },
    });
    await on.cluster.until("the policy holds", async () => {
      const made = on.cluster.core.createNamespacedSecret({
        namespace: at,
        dryRun: "All",
        body: { metadata: { name: "x" } },
      });
      return await made.then(
        () => false,
        () => true,
      );
    });
    await on.pods.make("ruled", [exampleContainer("main", vectoradd, share(25))], {}, { namespace: at });
    await on.cluster.until("it says so", async () =>
      (await on.pods.reasonOf("ruled", at)).includes("label team"),
    );
    await policies.deleteValidatingAdmissionPolicyBinding({ name: "labelled" });
    await policies.deleteValidatingAdmissionPolicy({ name: "labelled" });
    await on.pods.hasPhase("ruled", "Succeeded", at);
    await on.cluster.core.deleteNamespace({ name: at });
  });
});

/** A user of a namespace whose only right is to create pods. */
async function limitedUser({ cluster }: OnRealNode, at: string) {
  const name = "developer";
  const rbac = cluster.plane.cluster.config.makeApiClient(RbacAuthorizationV1Api);
  await cluster.core.createNamespacedServiceAccount({ namespace: at, body: { metadata: { name } } });
  await rbac.createNamespacedRole({
    namespace: at,
    body: { metadata: { name }, rules: [{ apiGroups: [""], resources: ["pods"], verbs: ["create"] }] },
  });
  await rbac.createNamespacedRoleBinding({
    namespace: at,
    body: {
      metadata: { name },
      roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "Role", name },
      subjects: [{ kind: "ServiceAccount", name, namespace: at }],
    },
  });
  const body = { apiVersion: "authentication.k8s.io/v1", kind: "TokenRequest", spec: { audiences: [] } };
  const { status } = await cluster.core.createNamespacedServiceAccountToken({ namespace: at, name, body });
  return connectCluster(cluster.plane.configFor(status?.token ?? ""));
}
