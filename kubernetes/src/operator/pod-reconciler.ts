// SPDX-License-Identifier: Apache-2.0

// Reconciles one pod: its claims, its objects and its conditions. It reads all of them each time and keeps no state that
// matters, so a new leader continues where the last one stopped.

import { type Claim, ClaimState, countOf, errorCodeOf, formatDuration } from "@millpond/api";
import type { ResourceV1ResourceClaim, V1Node, V1Pod } from "@kubernetes/client-node";
import type { Logger } from "pino";
import { parseSlices, type PodRequest, readPodOptions } from "../request/pod-request.ts";
import { claimName, parseOwner, podOfClaim } from "../request/pod-claims.ts";
import { keysOf, type ResourceNames } from "../request/resource-names.ts";
import { parseUserClaims, resourceClaimOf } from "../request/user-claims.ts";
import { objectName, tokenKey } from "../webhook/mutate-pod.ts";
import { claimNameKey } from "../webhook/mutate-user-claims.ts";
import { readResize } from "../webhook/resize.ts";
import { ClaimMaker, type ClaimMakerOptions } from "./claim-maker.ts";
import { hasEnded } from "./claim-view.ts";
import { hostLabelOf } from "./cluster-nodes.ts";
import { type DeviceClaims, isOfLostDevices, lacksDevices } from "./claims/device-claims.ts";
import type { UserClaims } from "./claims/user-claims.ts";
import { isPassing, messageOf } from "./pool-errors.ts";
import { Preparation } from "./preparation.ts";
import type { Followers } from "./followers.ts";
import {
  eventRepeatMs,
  hasStarted,
  isBound,
  isOver,
  isPlaced,
  lacksSecret,
  nameOf,
  type PodWriter,
  refusalOf,
  uidOf,
  waitingWriteMs,
  wasRefused,
} from "./pod-writer.ts";

export interface PodReconcilerOptions extends ClaimMakerOptions {
  readonly names: ResourceNames;
  readonly writer: PodWriter;
  /** Creates the ResourceClaims of pods; undefined: pods get their vGPUs from the device plugin. */
  readonly deviceClaims: DeviceClaims | undefined;
  /** Claims of ResourceClaims that users write; undefined: there are none in this cluster. */
  readonly userClaims: UserClaims | undefined;
  /** A ResourceClaim by its name; undefined: it does not exist, or not yet. */
  readonly findResourceClaim: (namespace: string, name: string) => ResourceV1ResourceClaim | undefined;
  /** Whether the API server does not have the pod either; undefined: the pod's full name is unknown. */
  readonly isGone: (namespace: string, name: string | undefined, uid: string) => Promise<boolean>;
  /** The Kubernetes node on the machine of a node of the pool; undefined: there is none. */
  readonly hostOf: (poolNode: string) => V1Node | undefined;
  /** Whether pods wait behind a scheduling gate; otherwise the scheduler extender holds them back. */
  readonly isGated: boolean;
  /** The Secret that lets programs use one claim and nothing else. */
  readonly makeToken: (claim: string, tenant: string) => Promise<string>;
  /** Address and authority by which programs reach their controller. */
  readonly endpoint: { readonly controller: string; readonly ca: string };
  readonly followers: Followers;
  readonly log: Logger;
}

const resizeAgainMs = 30_000;
const unseen = "the pool has not looked at it yet";
/** How long the records may differ: a released device is free for the pool a moment before it is for the scheduler. */
const lackingMs = 5000;
/** Time after which missing ResourceClaims of a pod that has not started are recreated. */
const recreateAfterMs = 5000;

export class PodReconciler {
  readonly #options: PodReconcilerOptions;
  readonly #maker: ClaimMaker;
  /** Undefined: kubelets prepare no devices. */
  readonly #preparation: Preparation | undefined;
  /** When the scheduler first found no devices for a pod, by the pod's UID, in milliseconds. */
  readonly #lackingSince = new Map<string, number>();
  /** When a pod's objects were created and for which allocations, by the pod's UID. */
  readonly #made = new Map<string, { readonly allocations: string; readonly atMs: number }>();
  /** How often Kubernetes' scheduler had no room for a device that the pool had granted. */
  bookDifferences = 0;

  constructor(options: PodReconcilerOptions) {
    this.#options = options;
    this.#maker = new ClaimMaker(options);
    const { deviceClaims, names, writer } = options;
    this.#preparation =
      deviceClaims === undefined ? undefined : new Preparation({ keys: keysOf(names), writer });
  }

  /** @returns Milliseconds after which to process it again; undefined: when something changes. */
  async reconcile(uid: string): Promise<number | undefined> {
    const pod = this.#options.findPod(uid);
    if (pod === undefined || isOver(pod)) {
      if (pod !== undefined && wasRefused(pod) && (await this.#options.followers.make(pod)) !== undefined)
        await this.#options.writer.end(pod, 0);
      await this.#endClaims(uid, pod);
      return undefined;
    }
    const { names, writer } = this.#options;
    const keys = keysOf(names);
    const annotations = pod.metadata?.annotations ?? {};
    const text = annotations[keys.request];
    const written = annotations[keys.claims];
    const id = annotations[keys.id];
    // The webhook did not prepare the pod, so it has nothing of ours.
    if ((text === undefined && written === undefined) || id === undefined) return undefined;
    // The pod is ending, but keeps its claims until its programs have ended. If none has started, none will.
    if (pod.metadata?.deletionTimestamp !== undefined) {
      if (!isPlaced(pod)) await this.#endClaims(uid, pod);
      return undefined;
    }
    if (text === undefined) return await this.#useUserClaims(pod, written ?? "", id);
    const gate = otherGateOf(pod, keys.gate);
    // It could not use its vGPUs yet.
    if (gate !== undefined && !this.#options.claims.claims.has(claimName(uid, 0)))
      return await this.#waits(pod, "Gated", `waits for another scheduling gate: ${gate}`);
    let request: PodRequest;
    try {
      request = { slices: parseSlices(text), ...readPodOptions(names, pod) };
    } catch (error) {
      return await this.#waits(pod, "Refused", messageOf(error));
    }
    const made = await this.#maker.make(pod, request);
    if (made.kind !== "claims") {
      if (made.kind === "refused") await writer.tell(pod, "Warning", "MillpondRefused", made.why);
      await this.#waits(pod, made.kind === "refused" ? "Refused" : "Waiting", made.why);
      return made.againMs;
    }
    const { claims } = made;
    if (claims.every(isGranted)) return await this.#grant(pod, request, claims, id);
    return await this.#withhold(pod, claims);
  }

  /** Decides the next state of a pod whose claims are not all granted. */
  async #withhold(pod: V1Pod, claims: readonly Claim[]): Promise<number | undefined> {
    const { writer, names } = this.#options;
    const ended = claims.find((claim) => hasEnded(claim));
    if (ended !== undefined) return await this.#endPod(pod, ended);
    const noticed = claims.find((claim) => claim.preemptAt !== 0n);
    if (noticed !== undefined && !isGated(pod, keysOf(names).gate))
      return await this.#giveNotice(pod, noticed);
    const waiting = claims.find((claim) => !isHeld(claim));
    // The claim has notice and the pod has not started: its allocation is taken, and it waits again.
    if (waiting === undefined) return undefined;
    if (this.#options.deviceClaims !== undefined && waiting.requeues > 0 && isPlaced(pod))
      return await this.#endRobbed(pod, waiting.reason);
    const before = waiting.queuePosition > 1 ? `, ${waiting.queuePosition - 1} ahead of it` : "";
    const why = waiting.reason === "" ? unseen : waiting.reason;
    const message = `waits in queue ${waiting.queue === "" ? "default" : waiting.queue}: ${why}${before}`;
    // The longer the queue, the more pods a change of it affects, and the less it matters to those at its end.
    const factor = isUnseen(pod, keysOf(names).bound) ? 1 : toPatience(waiting.queuePosition);
    if (waiting.reason !== "")
      await writer.tell(pod, "Normal", "MillpondWaiting", message, factor * eventRepeatMs);
    return await this.#waits(pod, "Waiting", message, factor * waitingWriteMs);
  }

  /** Handles a pod with ResourceClaims of its user: Kubernetes' scheduler has chosen the devices, and the pool follows. */
  async #useUserClaims(pod: V1Pod, written: string, id: string): Promise<number | undefined> {
    const { writer, names, endpoint, makeToken, userClaims } = this.#options;
    const { namespace } = nameOf(pod);
    const claims: Claim[] = [];
    const visible: Record<string, string> = {};
    for (const used of parseUserClaims(written)) {
      const name = resourceClaimOf(pod, used.claim);
      const found = name === undefined ? undefined : userClaims?.find(namespace, name);
      if (typeof found === "string") {
        await writer.tell(pod, "Warning", "MillpondRefused", found);
        return await this.#waits(pod, "Refused", found);
      }
      if (found === undefined) {
        const message = `Kubernetes' scheduler has allocated nothing for its ResourceClaim ${used.claim} yet`;
        return await this.#waits(pod, "Unallocated", message);
      }
      claims.push(found);
      Object.assign(visible, userClaims?.visibleOf(pod, used, found));
    }
    if (!claims.every(isGranted)) return await this.#withhold(pod, claims);
    // The pool's nodes are not known yet.
    if (Object.values(visible).includes("")) return 500;
    if (!hasStarted(pod) || lacksSecret(pod)) {
      const values = { ...visible };
      for (const [index, claim] of claims.entries()) {
        values[claimNameKey(index)] = claim.name;
        values[tokenKey(index)] = await makeToken(claim.name, claim.tenant);
      }
      const refusal = await refusalOf(writer.makeSecret(pod, objectName(id), { ...endpoint, ...values }));
      if (refusal !== undefined) return await this.#lacksPermission(pod, refusal);
    }
    const places = [...new Set(claims.flatMap(({ allocation }) => allocation?.node ?? []))].join(",");
    const condition = { type: keysOf(names).bound, status: "True", reason: "Bound" } as const;
    const message = `has what its ResourceClaims ask for, on ${places}`;
    if (!isBound(pod, condition.type)) await writer.tell(pod, "Normal", "MillpondBound", message);
    await writer.setCondition(pod, { ...condition, message });
    return await this.#preparation?.look(pod);
  }

  async #grant(
    pod: V1Pod,
    { options, slices }: PodRequest,
    claims: readonly Claim[],
    id: string,
  ): Promise<number | undefined> {
    const { names, writer, endpoint, makeToken, deviceClaims, hostOf } = this.#options;
    const keys = keysOf(names);
    if (this.#isRobbed(pod, objectName(id), claims))
      return await this.#endRobbed(pod, "its claim waited again, and has others now");
    const isNew =
      isGated(pod, keys.gate) || pod.spec?.nodeName === undefined || !hasStarted(pod) || lacksSecret(pod);
    if (isNew && (lacksSecret(pod) || this.#lacksObjects(pod, objectName(id), claims))) {
      const tokens: Record<string, string> = {};
      for (const [index, claim] of claims.entries())
        tokens[tokenKey(index)] = await makeToken(claim.name, claim.tenant);
      const refusal =
        (await refusalOf(writer.makeSecret(pod, objectName(id), { ...endpoint, ...tokens }))) ??
        (deviceClaims && (await refusalOf(deviceClaims.make(pod, objectName(id), claims))));
      if (refusal !== undefined) return await this.#lacksPermission(pod, refusal);
      this.#made.set(uidOf(pod), { allocations: allocationsOf(claims), atMs: performance.now() });
    }
    const places = [...new Set(claims.flatMap(({ allocation }) => allocation?.node ?? []))].join(",");
    const isUnmarked = !this.#options.isGated && pod.metadata?.annotations?.[keys.node] === undefined;
    if (isGated(pod, keys.gate) || isUnmarked) {
      const where = options.locality === "local-only" ? "required" : "preferred";
      const host = options.locality === "any" ? undefined : hostOf(claims[0]?.allocation?.node ?? "");
      if (where === "required" && host === undefined) {
        return await this.#waits(
          pod,
          "NoHost",
          `its vGPUs are on ${places}, which is not a node of this cluster, and its locality is local-only`,
        );
      }
      let refusal: string | undefined;
      if (isUnmarked) await writer.markGranted(pod, places, host?.metadata?.name);
      else refusal = await writer.openGate(pod, places, host && hostLabelOf(host), where);
      if (refusal === "changed") return 200;
      if (refusal !== undefined) return await this.#lacksPermission(pod, refusal);
      const count = slices.reduce((sum, { slice }) => sum + slice.gpus, 0);
      await writer.tell(pod, "Normal", "MillpondBound", `has ${countOf(count, "vGPU")} on ${places}`);
    }
    await writer.setCondition(pod, {
      type: keys.bound,
      status: "True",
      reason: claims.every(({ state }) => state === ClaimState.DORMANT) ? "Lazy" : "Bound",
      message: places === "" ? "holds nothing until its programs call CUDA" : `has its vGPUs, on ${places}`,
    });
    const again = await this.#compareBooks(pod, claims, { id, places });
    const retry = await this.#preparation?.look(pod);
    return again ?? retry ?? (await this.#resize(pod, claims));
  }

  /**
   * Whether objects of a pod that has not started must be created: not created yet for these allocations, or a ResourceClaim
   * has been deleted since. A missing Secret is noticed when a container lacks it.
   */
  #lacksObjects(pod: V1Pod, baseName: string, claims: readonly Claim[]): boolean {
    const { deviceClaims, findResourceClaim } = this.#options;
    const made = this.#made.get(uidOf(pod));
    if (made?.allocations !== allocationsOf(claims)) return true;
    // The copy of the ResourceClaims may be this much older.
    if (deviceClaims === undefined || performance.now() - made.atMs < recreateAfterMs) return false;
    const { namespace } = nameOf(pod);
    return claims.some((_, index) => findResourceClaim(namespace, `${baseName}-${index}`) === undefined);
  }

  /**
   * Replaces and reports a ResourceClaim for which the scheduler has found no room for `lackingMs` although it is granted.
   */
  async #compareBooks(
    pod: V1Pod,
    claims: readonly Claim[],
    { id, places }: { readonly id: string; readonly places: string },
  ): Promise<number | undefined> {
    const { deviceClaims, writer, log } = this.#options;
    const uid = uidOf(pod);
    if (deviceClaims === undefined || !lacksDevices(pod)) {
      this.#lackingSince.delete(uid);
      return undefined;
    }
    const since = this.#lackingSince.get(uid);
    if (since === undefined) this.#lackingSince.set(uid, performance.now());
    const waitMs = (since ?? performance.now()) + lackingMs - performance.now();
    if (waitMs > 0) return waitMs;
    this.#lackingSince.set(uid, performance.now());
    const count = await deviceClaims.remake(pod, objectName(id), claims);
    if (count > 0) {
      this.bookDifferences += 1;
      const { namespace, name } = nameOf(pod);
      log.warn({ pod: `${namespace}/${name}`, places }, "Kubernetes' books differ from the pool's");
      await writer.tell(
        pod,
        "Warning",
        "MillpondBooksDiffer",
        `Kubernetes' scheduler finds no room on ${places}, where the pool has granted it; its ResourceClaim is created again`,
      );
    }
    return lackingMs;
  }

  /** Compares the request in the annotation with that of the claim, so that no record of earlier changes is needed. */
  async #resize(pod: V1Pod, claims: readonly Claim[]): Promise<number | undefined> {
    const { names, writer } = this.#options;
    const keys = keysOf(names);
    const slices = parseSlices(pod.metadata?.annotations?.[keys.request] ?? "");
    let again: number | undefined;
    for (const [key, text] of Object.entries(pod.metadata?.annotations ?? {})) {
      if (key !== keys.resize && !key.startsWith(`${keys.resize}.`)) continue;
      const container = key === keys.resize ? undefined : key.slice(keys.resize.length + 1);
      const index =
        container === undefined ? 0 : slices.findIndex(({ containers }) => containers.includes(container));
      const claim = claims[index];
      try {
        if (claim === undefined || (container === undefined && claims.length > 1)) {
          throw new Error(
            `${key}: the pod has ${claims.length} claims; name the container: ${keys.resize}.${slices[0]?.containers[0]}`,
          );
        }
        const { memory, compute } = readResize(key, text);
        const isMemory =
          memory === undefined ||
          (memory.kind === "bytes"
            ? memory.bytes === claim.memoryBytes
            : memory.percent === claim.memoryPercent);
        if (isMemory && (compute === undefined || compute === claim.computePercent)) continue;
        await this.#options.claims.resize({
          name: claim.name,
          memoryBytes: memory?.kind === "bytes" ? memory.bytes : 0n,
          memoryPercent: memory?.kind === "percent" ? memory.percent : 0,
          computePercent: compute ?? 0,
        });
        await writer.tell(pod, "Normal", "MillpondResized", `has ${text} now`);
        await writer.setCondition(pod, {
          type: keys.resized,
          status: "True",
          reason: "Resized",
          message: `has ${text}`,
        });
      } catch (error) {
        const code = errorCodeOf(error);
        if (code !== undefined && isPassing(code)) throw error;
        await writer.tell(pod, "Warning", "MillpondNotResized", messageOf(error));
        await writer.setCondition(pod, {
          type: keys.resized,
          status: "False",
          reason: "Refused",
          message: messageOf(error),
        });
        again = resizeAgainMs;
      }
    }
    return again;
  }

  async #giveNotice(pod: V1Pod, claim: Claim): Promise<number | undefined> {
    const { writer, names } = this.#options;
    const seconds = Math.max(1, this.#options.claims.secondsUntil(claim.preemptAt));
    const follower = isByLimit(claim) ? undefined : await this.#options.followers.make(pod);
    const message = `loses its vGPUs in ${formatDuration(seconds)} and ends${ofFollower(follower)}: ${claim.reason}`;
    await writer.tell(pod, "Warning", "MillpondPreempted", message);
    await writer.setCondition(pod, {
      type: keysOf(names).bound,
      status: "False",
      reason: "Preempted",
      message,
    });
    if (!isByLimit(claim)) await writer.markDisruption(pod, "PreemptionByMillpond", message);
    await writer.end(pod, seconds);
    return undefined;
  }

  /** Whether the pod's ResourceClaims, which can no longer change, name devices that its claims have lost. */
  #isRobbed(pod: V1Pod, baseName: string, claims: readonly Claim[]): boolean {
    const { names, findResourceClaim } = this.#options;
    if (!isPlaced(pod)) return false;
    return claims.some((claim, index) => {
      const there = findResourceClaim(nameOf(pod).namespace, `${baseName}-${index}`);
      return there !== undefined && isOfLostDevices(names, pod, there, claim);
    });
  }

  /**
   * Ends a pod whose node or device was lost while the claim waits for others: a pod that has a node keeps the
   * allocation of Kubernetes, so that only another pod can use the claim's next one.
   */
  async #endRobbed(pod: V1Pod, why: string): Promise<number | undefined> {
    const { writer, names } = this.#options;
    const follower = await this.#options.followers.make(pod);
    const message = `has lost its vGPUs and ends${ofFollower(follower)}: ${why}`;
    await writer.tell(pod, "Warning", "MillpondLost", message);
    await writer.setCondition(pod, { type: keysOf(names).bound, status: "False", reason: "Lost", message });
    await writer.markDisruption(pod, "DeviceLossByMillpond", message);
    await writer.end(pod, Math.min(30, pod.spec?.terminationGracePeriodSeconds ?? 30));
    return undefined;
  }

  /**
   * Ends a pod whose claim has ended: the pod cannot continue, and its controller, if it has one, creates
   * another.
   */
  async #endPod(pod: V1Pod, claim: Claim): Promise<number | undefined> {
    const { writer, names } = this.#options;
    if (claim.state === ClaimState.FAILED && !isByLimit(claim)) await this.#options.followers.make(pod);
    const message = `its claim ${claim.name} has ended: ${claim.reason === "" ? "released" : claim.reason}`;
    await writer.tell(pod, "Warning", "MillpondClaimEnded", message);
    await writer.setCondition(pod, {
      type: keysOf(names).bound,
      status: "False",
      reason: "ClaimEnded",
      message,
    });
    // The pool lost the claim's devices.
    if (claim.state === ClaimState.FAILED) await writer.markDisruption(pod, "DeviceLossByMillpond", message);
    await writer.end(pod, Math.min(30, pod.spec?.terminationGracePeriodSeconds ?? 30));
    return undefined;
  }

  async #endClaims(uid: string, pod: V1Pod | undefined): Promise<void> {
    const { claims, writer, isGone } = this.#options;
    const names = [...claims.claims.keys()].filter((name) => podOfClaim(name)?.uid === uid);
    for (const name of names) {
      const claim = claims.claims.get(name);
      if (claim === undefined) continue;
      if (pod === undefined) {
        // This instance's copy of the pods may be older than a claim that another instance has made.
        const owner = parseOwner("pod", claim.owner);
        if (owner !== undefined && !(await isGone(owner.namespace, owner.name, uid))) continue;
      }
      await claims.release(name);
    }
    if (pod === undefined) {
      writer.forget(uid);
      this.#options.followers.forget(uid);
    }
    this.#lackingSince.delete(uid);
    this.#made.delete(uid);
    this.#preparation?.forget(uid);
  }

  /** Reports that the cluster refuses what the pod needs, because of a quota or a policy for example, and tries again later. */
  async #lacksPermission(pod: V1Pod, refusal: string): Promise<number> {
    const message = `the pool has granted its vGPUs, but the cluster refuses an object or change that it needs: ${refusal}`;
    await this.#options.writer.tell(pod, "Warning", "MillpondRefused", message);
    await this.#waits(pod, "ClusterRefuses", message);
    return waitingWriteMs;
  }

  async #waits(pod: V1Pod, reason: string, message: string, leastMs?: number): Promise<number | undefined> {
    const { writer, names } = this.#options;
    const condition = { type: keysOf(names).bound, status: "False", reason, message } as const;
    return await writer.setCondition(pod, condition, leastMs);
  }
}

/** Whether the pod's condition has no reason from the pool yet. */
function isUnseen({ status }: V1Pod, type: string): boolean {
  const said = status?.conditions?.find((each) => each.type === type)?.message ?? unseen;
  return said.includes(unseen);
}

/** The factor, 1 to 12, by which a pod at this position of its queue reports changes of the queue less often than the first. */
function toPatience(position: number): number {
  return Math.max(1, Math.min(12, position / 5));
}

function ofFollower(name: string | undefined): string {
  return name === undefined ? "" : `, and ${name} waits in its place`;
}

/**
 * Whether a claim ends by a limit of its owner: that is not a disruption, and a retry would end the same way.
 */
function isByLimit({ why }: Claim): boolean {
  return ["time-limit-over", "time-limit-ends", "idle-limit"].includes(why?.code ?? "");
}

/** Whether a claim is granted, or does not need its devices yet. */
function isHeld({ state }: Claim): boolean {
  return state === ClaimState.BOUND || state === ClaimState.DORMANT;
}

function isGranted(claim: Claim): boolean {
  return isHeld(claim) && claim.preemptAt === 0n;
}

/** Changes whenever one of the claims is allocated again. */
function allocationsOf(claims: readonly Claim[]): string {
  return claims.map(({ allocation }) => String(allocation?.epoch ?? 0n)).join(" ");
}

/** A scheduling gate of another controller that holds the pod back; undefined: there is none. */
function otherGateOf({ spec }: V1Pod, own: string): string | undefined {
  return spec?.schedulingGates?.find(({ name }) => name !== own)?.name;
}

function isGated({ spec }: V1Pod, gate: string): boolean {
  return spec?.schedulingGates?.some(({ name }) => name === gate) ?? false;
}
