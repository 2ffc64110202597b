// SPDX-License-Identifier: Apache-2.0

// The controllers of `deploy/postgresql`, with the Secret that the setup makes for them, as the processes that their pods
// would run: in namespaces where their names resolve and the Secret is read-only.

import { type ChildProcess, execFileSync, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { chmodSync, chownSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { missingPostgres, PostgresServer } from "@millpond/controller/testing/postgres-server";
import type { KubernetesObject, V1PodTemplateSpec } from "@kubernetes/client-node";
import { expect, onTestFinished, test } from "vitest";
import { inRoot } from "../../scripts/lib/paths.ts";
import { setUp } from "./setup.ts";
import { renderChart } from "./testing/helm-chart.ts";
import { readManifests } from "./testing/manifests.ts";
import { firstProcessOf, spawnInNamespaces } from "./testing/namespaces.ts";
import { PlayedApiServer } from "./testing/played/api-server.ts";
import { systemNamespace } from "./testing/test-cluster.ts";

const canUnshare =
  process.getuid?.() === 0 && spawnSync("unshare", ["-n", "-m", "-p", "-f", "true"]).status === 0;
const missing = missingPostgres ?? (canUnshare ? undefined : "there are no namespaces here");
const user = 65_532;
const service = `millpond-controller.${systemNamespace}.svc`;
const addresses = ["127.0.0.2", "127.0.0.3"] as const;
const timeout = 400_000;

/** The setup's Secret, as files. */
async function makePoolSecret(directory: string): Promise<Record<string, string>> {
  await using server = await PlayedApiServer.start(readManifests("base"));
  const { cluster } = server;
  const at = { namespace: systemNamespace, name: "millpond-pool" };
  await setUp({ cluster, ...at, controllerHost: service, hasDatabase: true });
  const { stringData = {}, data = {} } = await cluster.core.readNamespacedSecret(at);
  const values = {
    ...stringData,
    ...Object.fromEntries(
      Object.entries(data).map(([key, value]) => [key, Buffer.from(value, "base64").toString()]),
    ),
  };
  mkdirSync(directory);
  for (const [key, value] of Object.entries(values)) {
    const path = join(directory, key);
    writeFileSync(path, value);
    chownSync(path, 0, user);
    chmodSync(path, 0o440);
  }
  return values;
}

test.skipIf(missing !== undefined)(
  `each of two controllers of the manifests takes over from the other, behind one Service${missing === undefined ? "" : ` (skipped: ${missing})`}`,
  { timeout },
  async () => {
    const directory = mkdtempSync(join(tmpdir(), "millpond-controllers-"));
    onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
    chmodSync(directory, 0o755);
    const database = await PostgresServer.start();
    onTestFinished(() => database[Symbol.asyncDispose]());
    const url = await database.makeDatabase();
    const secret = join(directory, "pool");
    const values = await makePoolSecret(secret);
    expect(Object.keys(values)).toContain("pool.key");

    const hosts = join(directory, "hosts");
    /** The pods' own names, and the address to which the Service leads. */
    const serve = (address: string) => {
      const own = addresses.map(
        (each, index) => `${each} millpond-controller-${index}.millpond-controllers.${systemNamespace}.svc`,
      );
      writeFileSync(hosts, ["127.0.0.1 localhost", ...own, `${address} ${service}`, ""].join("\n"));
    };
    serve(addresses[0]);
    const script = join(directory, "pod.sh");
    writeFileSync(
      script,
      `set -eu
ip link set lo up
mount --bind ${hosts} /etc/hosts
mount --bind ${secret} ${secret}
mount -o remount,ro,bind ${secret}
touch ${directory}/ready
exec sleep 1000000
`,
    );
    const pod = spawnInNamespaces(script, process.env);
    onTestFinished(() => {
      pod.kill("SIGKILL");
    });
    await expect.poll(() => spawnSync("test", ["-e", join(directory, "ready")]).status, { timeout }).toBe(0);
    const enter = ["-t", firstProcessOf(pod), "-n", "-m", "-p"];

    const objects = renderChart({ values: { pool: { database: "millpond-database" } } });
    const { spec } = objects.find(({ kind }) => kind === "StatefulSet") as KubernetesObject & {
      spec: { template: V1PodTemplateSpec };
    };
    const [container] = spec.template.spec?.containers ?? [];
    const cli = inRoot("cli", "bin", "millpond.mjs");
    const start = (index: number): ChildProcess => {
      const state = join(directory, `state-${index}`);
      mkdirSync(state, { recursive: true });
      chownSync(state, user, user);
      const args = (container?.args ?? []).map((arg) =>
        arg
          .replace("$(POD_NAME)", `millpond-controller-${index}`)
          .replace("/etc/millpond/", `${secret}/`)
          .replace("/var/lib/millpond/state", state)
          .replace("0.0.0.0", addresses[index] ?? ""),
      );
      const identity = [`--reuid=${user}`, `--regid=${user}`, "--clear-groups"];
      // It ends with `nsenter`, which waits for it outside its process namespace.
      const own = ["setpriv", "--pdeathsig", "KILL", ...identity, process.execPath, cli, "controller"];
      return spawn("nsenter", [...enter, ...own, ...args], {
        stdio: "ignore",
        env: {
          PATH: process.env["PATH"],
          HOME: state,
          MILLPOND_STORE: url,
          MILLPOND_USER_TOKENS: values["token"],
          MILLPOND_AGENT_TOKENS: values["agent-token"],
        },
      });
    };
    const end = async (child: ChildProcess | undefined): Promise<void> => {
      if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
      child.kill("SIGKILL");
      await once(child, "exit");
    };
    const controllers = [start(0), start(1)];
    onTestFinished(async () => {
      for (const each of controllers) await end(each);
    });
    const millpond = (...args: readonly string[]): string =>
      execFileSync("nsenter", [...enter, process.execPath, cli, ...args], {
        encoding: "utf8",
        stdio: ["ignore", "pipe", "pipe"],
        env: {
          PATH: process.env["PATH"],
          HOME: directory,
          MILLPOND_CONTROLLER: values["controller"],
          MILLPOND_TOKEN: values["token"],
          MILLPOND_CA: join(secret, "ca.crt"),
        },
      });
    const succeeds = (...args: readonly string[]) =>
      expect
        .poll(
          () => {
            try {
              millpond(...args);
              return "succeeds";
            } catch (error) {
              return String(error);
            }
          },
          { timeout, interval: 250 },
        )
        .toBe("succeeds");

    // One of the two is a follower, and directs its callers to the other.
    for (const [index, address] of addresses.entries()) {
      serve(address);
      await succeeds("queue", "create", `by-${index}`);
    }
    for (const lost of [0, 1]) {
      await end(controllers[lost]);
      serve(addresses[1 - lost] ?? "");
      await succeeds("queue", "create", `without-${lost}`);
      controllers[lost] = start(lost);
      serve(addresses[lost] ?? "");
      await succeeds("get", "queues");
    }
    const names = ["by-0", "by-1", "without-0", "without-1"];
    for (const name of names) expect(millpond("get", "queues")).toContain(name);
    expect(readFileSync(join(secret, "pool.key"), "utf8")).toBe(values["pool.key"]);
  },
);
