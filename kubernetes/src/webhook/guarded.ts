// SPDX-License-Identifier: Apache-2.0

// Millpond's own directories and Secrets that no other pod may access: sockets and keys on hosts, and the tokens of
// other pods. All pods are checked, whether or not they use the pool.

import { posix } from "node:path";
import { millpondError, quote } from "@millpond/api";
import type { V1Container, V1EphemeralContainer, V1Pod } from "@kubernetes/client-node";

/** Directories of hosts in which Millpond has sockets and keys. */
const ownPaths = ["/run/millpond", "/var/run/millpond", "/var/lib/millpond"] as const;

/**
 * Further paths that a pod that uses the pool must not access: sockets of plugins, and the Secrets of all
 * pods of the node.
 */
const guardedPaths = [...ownPaths, "/var/lib/kubelet"] as const;

/** Secrets that the operator creates. */
const secretPattern = /^millpond-[0-9a-f]{16}$/;

/** ResourceClaims that the operator creates. */
const claimPattern = /^millpond-[0-9a-f]{16}-\d+$/;

/**
 * @throws MILLPOND_E_INVALID if a volume exposes one of the directories, its content, or a directory that contains it
 */
export function refuseGuardedPaths(pod: V1Pod): void {
  for (const { volume, path, normal } of hostPaths(pod)) {
    if (isThroughProcess(normal)) throw goesThrough(volume, path);
    if (isOfProcesses(path)) throw showsProcesses(volume, path);
    const guarded = guardedPaths.find(
      (each) => isWithin(normal, each) || each.startsWith(normal === "/" ? "/" : `${normal}/`),
    );
    if (guarded !== undefined) {
      throw shows(
        volume,
        path,
        guarded,
        "A pod that uses the pool is given all that it needs; leave the volume out.",
      );
    }
  }
}

/**
 * Pods without a request may mount `/` or `/run`, as monitoring agents do, but not Millpond's directories.
 *
 * @throws MILLPOND_E_INVALID
 */
export function refuseOwnPaths(pod: V1Pod, domain: string): void {
  const registered = `/var/lib/kubelet/plugins/${domain}`;
  for (const { volume, path, normal } of hostPaths(pod)) {
    if (isThroughProcess(normal) && normal.includes("millpond")) throw goesThrough(volume, path);
    const own = [...ownPaths, registered].find((each) => isWithin(normal, each));
    if (own !== undefined)
      throw shows(
        volume,
        path,
        own,
        "A program gets a vGPU by a limit of its container; leave the volume out.",
      );
  }
}

/**
 * @param id Id of the pod; undefined: it has no Secret of ours.
 * @throws MILLPOND_E_FORBIDDEN if the pod reads the token of another one
 */
export function refuseForeignSecrets(pod: V1Pod, id: string | undefined): void {
  const foreign = secretsOf(pod).find((name) => secretPattern.test(name) && name !== `millpond-${id}`);
  if (foreign === undefined) return;
  throw millpondError(
    "MILLPOND_E_FORBIDDEN",
    `the pod reads the Secret ${quote(foreign)}, which has the token of another pod`,
    { remedy: "Give the container a limit of its own, and leave the Secret out." },
  );
}

/**
 * @param id Id of the pod; undefined: it has no ResourceClaims of ours.
 * @throws MILLPOND_E_FORBIDDEN if the pod names a ResourceClaim that the operator creates for another one
 */
export function refuseForeignClaims({ spec }: V1Pod, id: string | undefined): void {
  const named = (spec?.resourceClaims ?? []).map(({ resourceClaimName = "" }) => resourceClaimName);
  const foreign = named.find((name) => claimPattern.test(name) && !name.startsWith(`millpond-${id}-`));
  if (foreign === undefined) return;
  throw millpondError(
    "MILLPOND_E_FORBIDDEN",
    `the pod names the ResourceClaim ${quote(foreign)}, which has the vGPUs of another pod`,
    { remedy: "Give the container a limit of its own, or share a ResourceClaim that you have written." },
  );
}

function shows(volume: string, path: string, guarded: string, remedy: string): Error {
  return millpondError(
    "MILLPOND_E_INVALID",
    `the volume ${quote(volume)} shows ${quote(path)} of the host, where ${guarded} is`,
    { remedy },
  );
}

function goesThrough(volume: string, path: string): Error {
  return millpondError(
    "MILLPOND_E_INVALID",
    `the volume ${quote(volume)} goes through ${quote(path)}, which may be any directory of the host`,
    { remedy: "Name the directory itself, or leave the volume out." },
  );
}

function showsProcesses(volume: string, path: string): Error {
  return millpondError(
    "MILLPOND_E_INVALID",
    `the volume ${quote(volume)} shows ${quote(path)} of the host, where the variables of other pods' programs are`,
    { remedy: "Leave the volume out." },
  );
}

function hostPaths({ spec }: V1Pod) {
  return (spec?.volumes ?? []).flatMap(({ name, hostPath }) =>
    hostPath === undefined
      ? []
      : [{ volume: name, path: hostPath.path, normal: normalizePath(hostPath.path) }],
  );
}

function isWithin(path: string, directory: string): boolean {
  return path === directory || path.startsWith(`${directory}/`);
}

/** Without `.`, `..`, double slashes and `/proc/PID/root`, as the kubelet would resolve it; other links depend on the host. */
function normalizePath(path: string): string {
  const normal = posix
    .normalize(`/${path}`)
    .replace(/^(?:\/proc\/[^/]+(?:\/task\/[^/]+)?\/root(?=\/|$))+/, "");
  return normal.replace(/\/$/, "") || "/";
}

/**
 * Whether a path goes through the working directory or an open file of a process, either of which may be any directory
 * of the host.
 */
function isThroughProcess(normal: string): boolean {
  return /^(?:\/proc\/[^/]+(?:\/task\/[^/]+)?\/(?:cwd|fd)|\/dev\/fd)(?:\/|$)/.test(normal);
}

/** Whether a path shows all processes of the host or what belongs to one of them. */
function isOfProcesses(path: string): boolean {
  return /^\/proc(?:\/(?:\d+|self|thread-self)(?:\/|$)|$)/.test(
    posix.normalize(`/${path}`).replace(/\/$/, ""),
  );
}

function secretsOf({ spec }: V1Pod): string[] {
  const volumes = (spec?.volumes ?? []).flatMap(({ secret, projected }) => [
    secret?.secretName,
    ...(projected?.sources ?? []).map((source) => source.secret?.name),
  ]);
  const containers: readonly (V1Container | V1EphemeralContainer)[] = [
    ...(spec?.containers ?? []),
    ...(spec?.initContainers ?? []),
    ...(spec?.ephemeralContainers ?? []),
  ];
  const variables = containers.flatMap(({ env, envFrom }) => [
    ...(env ?? []).map(({ valueFrom }) => valueFrom?.secretKeyRef?.name),
    ...(envFrom ?? []).map(({ secretRef }) => secretRef?.name),
  ]);
  return [...volumes, ...variables].filter((name) => name !== undefined);
}

/** CEL for the name of a Secret: whether it could be one of the operator's. */
const isOurs = (name: string): string => `${name}.startsWith("millpond-")`;

/** CEL: whether a pod that does not request the pool has a volume or a variable that must be checked. */
export function touchesExpression(domain: string): string {
  const volume = [
    `(has(v.hostPath) && (v.hostPath.path.contains("millpond") || v.hostPath.path.contains(${JSON.stringify(domain)})))`,
    `(has(v.secret) && has(v.secret.secretName) && ${isOurs("v.secret.secretName")})`,
    `(has(v.projected) && has(v.projected.sources) && v.projected.sources.exists(s, has(s.secret) && has(s.secret.name) && ${isOurs("s.secret.name")}))`,
  ].join(" || ");
  return [
    `(has(object.spec.volumes) && object.spec.volumes.exists(v, ${volume}))`,
    readsTokenExpression("object.spec.containers"),
    `(has(object.spec.initContainers) && (${readsTokenExpression("object.spec.initContainers")}))`,
  ].join(" || ");
}

/** CEL: whether a variable of one of the containers of a list may come from one of the operator's Secrets. */
export function readsTokenExpression(containers: string): string {
  return [
    `${containers}.exists(c, has(c.env) && c.env.exists(e, has(e.valueFrom) && has(e.valueFrom.secretKeyRef) && has(e.valueFrom.secretKeyRef.name) && ${isOurs("e.valueFrom.secretKeyRef.name")}))`,
    `${containers}.exists(c, has(c.envFrom) && c.envFrom.exists(e, has(e.secretRef) && has(e.secretRef.name) && ${isOurs("e.secretRef.name")}))`,
  ].join(" || ");
}
