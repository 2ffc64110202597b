// SPDX-License-Identifier: Apache-2.0

import {
  borrowingWord,
  type Claim,
  ClaimState,
  countOf,
  type Device,
  type Event,
  type ExplainClaimResponse,
  formatBytes,
  formatDuration,
  formatLabels,
  millpondError,
  type Node,
  type Queue,
  quotaText,
  type Session,
  type Tenant,
} from "@millpond/api";
import { parseAgentUrl } from "@millpond/platform";
import { exitStatus } from "../../command-table/command-table.ts";
import type { Values } from "../../command-line/command-values.ts";
import { type Connection, openConnection } from "../../connection/connection.ts";
import { findNode, findOne } from "../../output/find.ts";
import {
  claimKind,
  deviceKind,
  type Kind,
  nodeKind,
  queueKind,
  sessionKind,
  tenantKind,
} from "../../output/kinds.ts";
import {
  ageOf,
  askedMemory,
  claimColumns,
  cudaVersion,
  deviceColumns,
  deviceStatus,
  eventColumns,
  memoryErrors,
  nodeStatus,
  power,
  sessionColumns,
  sessionDevices,
  temperature,
  timeLimitEnd,
  timeUntil,
  troubleOf,
  xids,
  userColumns,
} from "../../output/columns.ts";
import {
  claimStateWord,
  claimToJson,
  explanationToJson,
  renderObject,
  sessionStateWord,
} from "../../output/resources.ts";
import { type Column, layOut, layOutFields } from "../../output/table.ts";
import { factFields, waitingFields } from "./why.ts";

const eventLimit = 10;

type Fields = (readonly [string, string])[];

interface Description {
  readonly fields: Fields;
  /** Subject of its events; empty: it has no events. */
  readonly subject: string;
}

export async function run(
  values: Values<"describe">,
  [kind = "", name = ""]: readonly string[],
): Promise<number> {
  process.stdout.write(await renderDescription(openConnection(values), values, kind, name));
  return exitStatus.ok;
}

/** Returns all details of one object, as text or JSON. */
export async function renderDescription(
  connection: Connection,
  values: Pick<Values<"describe">, "output">,
  kind: string,
  name: string,
): Promise<string> {
  const now = Math.floor(Date.now() / 1000);
  switch (kind) {
    case "node":
      return show(nodeKind, await findOne(nodeKind, connection, name), connection, values, (node) =>
        describeNode(node, now),
      );
    case "device":
      return show(
        deviceKind,
        await findOne(deviceKind, connection, name, (device) => device.uuid),
        connection,
        values,
        (device) => describeDevice(device, connection, now),
      );
    case "claim": {
      const { name: found } = await findOne(claimKind, connection, name);
      return show(explainedKind, await explain(connection, found), connection, values, (explained) =>
        describeClaim(explained, connection, now),
      );
    }
    case "queue":
      return show(queueKind, await findOne(queueKind, connection, name), connection, values, (queue) =>
        describeQueue(queue, connection, now),
      );
    case "tenant":
      return show(tenantKind, await findOne(tenantKind, connection, name), connection, values, (tenant) =>
        describeTenant(tenant, connection, now),
      );
    default:
      return show(sessionKind, await findOne(sessionKind, connection, name), connection, values, (session) =>
        describeSession(session, now),
      );
  }
}

interface Explained {
  readonly claim: Claim;
  readonly explanation: ExplainClaimResponse;
}

/** Returns a claim with the explanation of `why`, from the same moment and in the same words. */
const explainedKind: Pick<Kind<Explained>, "title" | "toJson"> = {
  title: claimKind.title,
  toJson: ({ claim, explanation }) => ({ ...claimToJson(claim), ...explanationToJson(explanation) }),
};

/** @throws MILLPOND_E_NOT_FOUND */
async function explain({ claims }: Connection, name: string): Promise<Explained> {
  const explanation = await claims.explainClaim({ name });
  const { claim } = explanation;
  if (claim === undefined) {
    throw millpondError("MILLPOND_E_VERSION", "the controller explained a claim without saying which");
  }
  return { claim, explanation };
}

async function show<T>(
  kind: Pick<Kind<T>, "title" | "toJson">,
  item: T,
  connection: Connection,
  values: Pick<Values<"describe">, "output">,
  describe: (item: T) => Description | Promise<Description>,
): Promise<string> {
  if (values.output === "json") return renderObject(kind.title, kind.toJson(item));
  const { fields, subject } = await describe(item);
  if (subject !== "") {
    const { events } = await connection.pool.listEvents({ subject, limit: eventLimit });
    fields.push(["Events", eventTable(events)]);
  }
  return `${layOutFields(fields)}\n`;
}

function describeNode(node: Node, now: number): Description {
  return {
    subject: `node/${node.name}`,
    fields: [
      ["Name", node.name],
      ["Status", withTrouble(nodeStatus(node), troubleOf(node.reason, node))],
      ["Host", node.hostname],
      ["Boot", node.bootId],
      ["Agent", `${parseAgentUrl(node.agentUrl).baseUrl}, version ${node.agentVersion}`],
      ["Joined", `${ageOf(node.joinedAt, now)} ago`],
      ["Last contact", `${ageOf(node.lastContactAt, now)} ago`],
      ["Warm workers", String(node.warmWorkers)],
      ["Labels", Object.keys(node.labels).length === 0 ? "none" : formatLabels(node.labels)],
      ["Devices", table(deviceColumns, node.devices)],
    ],
  };
}

function withTrouble(status: string, trouble: string): string {
  return trouble === "" ? status : `${status} (${trouble})`;
}

/** `SM 1980 MHz, memory 3201 MHz`; `-`: not reported. */
function clocks({ card }: Device): string {
  const of = (name: string, mhz: number | undefined) => (mhz === undefined ? [] : [`${name} ${mhz} MHz`]);
  return [...of("SM", card?.smClockMhz), ...of("memory", card?.memoryClockMhz)].join(", ") || "-";
}

async function describeDevice(
  device: Device,
  { pool, claims }: Connection,
  now: number,
): Promise<Description> {
  const [{ sessions }, { claims: all }] = await Promise.all([
    pool.listSessions({ node: device.node }),
    claims.listClaims({}),
  ]);
  const holders = all.flatMap((claim) => {
    const part =
      claim.allocation?.node === device.node
        ? claim.allocation.devices.find(({ uuid }) => uuid === device.uuid)
        : undefined;
    return part === undefined
      ? []
      : [`${claim.name}: ${formatBytes(part.memoryBytes)}, ${part.computePercent}% compute`];
  });
  return {
    subject: `device/${device.node}/${device.index}`,
    fields: [
      ["Name", `${device.node}/${device.index}`],
      ["UUID", device.uuid],
      ["Model", `${device.name} (${device.kind})`],
      ["Status", withTrouble(deviceStatus(device), troubleOf(device.healthReason, device))],
      ["Memory", formatBytes(device.memoryBytes)],
      ["  granted", formatBytes(device.allocatedMemoryBytes)],
      ["  used", formatBytes(device.usedMemoryBytes)],
      [
        "  overhead",
        device.overheadBytes === 0n ? "none" : `${formatBytes(device.overheadBytes)} for each claim`,
      ],
      ["Compute granted", `${device.allocatedComputePercent}%`],
      ["  used", device.usedComputePercent === undefined ? "unknown" : `${device.usedComputePercent}%`],
      ["Temperature", temperature(device)],
      ["Power", power(device)],
      ["Clocks", clocks(device)],
      ["Memory errors", memoryErrors(device)],
      ["Xids", xids(device)],
      ["Capability", `${device.computeCapability}, ${device.multiprocessors} multiprocessors`],
      ["CUDA", cudaVersion(device.cudaVersion)],
      ["Driver", device.driverVersion === "" ? "none" : device.driverVersion],
      ["PCI bus", device.pciBusId === "" ? "none" : device.pciBusId],
      ["PCIe switch", device.pcieSwitch === "" ? "unknown or none" : device.pcieSwitch],
      ["NUMA node", device.numaNode === "" ? "unknown" : device.numaNode],
      ["Claims", holders.length === 0 ? "none" : `\n${holders.join("\n")}`],
      [
        "Sessions",
        table(
          sessionColumns(now, false),
          sessions.filter((session) => session.devices.some(({ granted }) => granted?.uuid === device.uuid)),
        ),
      ],
    ],
  };
}

async function describeClaim(
  { claim, explanation }: Explained,
  connection: Connection,
  now: number,
): Promise<Description> {
  const { sessions } = await connection.pool.listSessions({ claim: claim.name });
  const { allocation } = claim;
  const compute = claim.computePercent === 0 ? "in proportion" : `${claim.computePercent}%`;
  const node = allocation === undefined ? undefined : await findNode(connection, allocation.node);
  const granted = allocation?.devices.map(({ uuid, memoryBytes, computePercent }) => {
    const index = node?.devices.find((device) => device.uuid === uuid)?.index;
    const device = index === undefined ? uuid : `${allocation.node}/${index} ${uuid}`;
    return `${device}: ${formatBytes(memoryBytes)}, ${computePercent}% compute`;
  });
  return {
    subject: `claim/${claim.name}`,
    fields: [
      ["Name", claim.name],
      [
        "State",
        claim.reason === "" ? claimStateWord(claim.state) : `${claimStateWord(claim.state)}: ${claim.reason}`,
      ],
      ["Owner", claim.owner === "" ? "none" : claim.owner],
      ["Asked", `${claim.gpus} × memory ${askedMemory(claim)}, compute ${compute}`],
      ...wishesOf(claim),
      ["Tenant", claim.tenant],
      ["User", claim.user || "unknown"],
      ["Queue", `${claim.queue}, priority ${claim.priority}`],
      ...waitOf(claim, explanation, now),
      ["Node", allocation === undefined ? "none" : `${allocation.node} (epoch ${allocation.epoch})`],
      ["Devices", granted === undefined ? "none" : `\n${granted.join("\n")}`],
      ["Created", `${ageOf(claim.createdAt, now)} ago`],
      ["Bound", claim.boundAt === 0n ? "never" : `${ageOf(claim.boundAt, now)} ago`],
      ...(timeLimitEnd(claim) === 0n ? [] : [["Time left", timeUntil(timeLimitEnd(claim), now)] as const]),
      [
        "Lease",
        claim.leaseExpiresAt === 0n
          ? "ended"
          : `${formatDuration(claim.leaseSeconds)}, of which ${formatDuration(Math.max(0, Number(claim.leaseExpiresAt) - now))} is left`,
      ],
      ["Sessions", table(sessionColumns(now, false), sessions)],
      ...notParked(sessions),
    ],
  };
}

/** Why it waits, if it does. */
function waitOf(claim: Claim, explanation: ExplainClaimResponse, now: number): Fields {
  return claim.state === ClaimState.PENDING
    ? [["Waiting", `for ${ageOf(claim.waitingSince, now)}`], ...waitingFields(explanation, now)]
    : [["Waiting", "no"], ...factFields(explanation)];
}

/** Why idle sessions keep their lazy claim awake. */
function notParked(sessions: readonly Session[]): (readonly [string, string])[] {
  const reasons = sessions
    .filter((session) => session.notParked !== "")
    .map((session) => `${session.program} (${session.clientPid}): ${session.notParked}`);
  return reasons.length === 0 ? [] : [["Not parked", `\n${reasons.join("\n")}`]];
}

async function describeQueue(queue: Queue, { claims }: Connection, now: number): Promise<Description> {
  const all = (await claims.listClaims({})).claims.filter((claim) => claim.queue === queue.name);
  return {
    subject: `queue/${queue.name}`,
    fields: [
      ["Name", queue.name],
      ["Parent", queue.parent === "" ? "none" : queue.parent],
      ["Weight", String(queue.weight)],
      ["Borrowing", borrowingWord(queue.borrowing)],
      ["Guaranteed", quotaText(queue.guaranteed)],
      ["Limit", quotaText(queue.limit)],
      ["Used", quotaText(queue.used)],
      ["Claims", table(claimColumns(now), all)],
    ],
  };
}

async function describeTenant(tenant: Tenant, { claims }: Connection, now: number): Promise<Description> {
  const all = (await claims.listClaims({})).claims.filter((claim) => claim.tenant === tenant.name);
  return {
    subject: `tenant/${tenant.name}`,
    fields: [
      ["Name", tenant.name],
      ["Limit", quotaText(tenant.limit)],
      ["Used", quotaText(tenant.used)],
      ["Each user", quotaText(tenant.userLimits?.each)],
      ["Users", table(userColumns, tenant.users)],
      ["Claims", table(claimColumns(now), all)],
    ],
  };
}

/** The members of a claim's request other than its size, under the names used on the command line. */
function wishesOf(claim: Claim): (readonly [string, string])[] {
  const json = claimToJson(claim);
  const wishes: readonly (readonly [string, string | number | boolean])[] = [
    ["lazy", json.lazy],
    ["lazy-idle", json.lazyIdleSeconds === 0 ? "" : formatDuration(json.lazyIdleSeconds)],
    ["exclusive", json.exclusive],
    ["model", json.models.join(",")],
    ["min-capability", json.minComputeCapability],
    ["pool", json.pool],
    ["node-labels", formatLabels(json.nodeLabels)],
    ["only-node", json.onlyNode],
    ["only-devices", json.onlyDevices.join(",")],
    ["affinity", formatLabels(json.affinity)],
    ["anti-affinity", formatLabels(json.antiAffinity)],
    ["labels", formatLabels(json.labels)],
    [
      "gang",
      json.gang === ""
        ? ""
        : `${json.gang}, rank ${json.gangRank} of ${json.gangSize}${json.sameNode ? ", on one node" : ""}`,
    ],
    ["placement", json.placement],
    ["locality", json.locality],
    ["service-class", json.serviceClass],
    ["preemptible", json.preemptible],
    ["time-limit", json.timeLimitSeconds === 0 ? "" : formatDuration(json.timeLimitSeconds)],
    ["idle-limit", json.idleLimitSeconds === 0 ? "" : formatDuration(json.idleLimitSeconds)],
    ["node-loss", json.nodeLoss],
    ["grace", formatDuration(json.graceSeconds)],
  ];
  return wishes
    .filter(([, value]) => value !== "" && value !== false)
    .map(([name, value]) => [`  ${name}`, value === true ? "yes" : String(value)] as const);
}

function describeSession(session: Session, now: number): Description {
  const devices = session.devices.map(
    ({ index, granted, memoryUsedBytes }) =>
      `${session.node}/${index} ${granted?.uuid ?? ""}: ${formatBytes(memoryUsedBytes)} of ` +
      `${formatBytes(granted?.memoryBytes ?? 0n)} used, ${granted?.computePercent ?? 0}% compute`,
  );
  return {
    subject: "",
    fields: [
      ["Name", session.id],
      ["State", sessionStateWord(session.state)],
      ["Claim", `${session.claim} (epoch ${session.epoch})`],
      ["Owner", session.owner === "" ? "none" : session.owner],
      ["Program", session.program === "" ? "none yet" : session.program],
      [
        "Process",
        `${session.clientPid} on ${session.clientHost === "" ? "a host unknown" : session.clientHost}`,
      ],
      ["Transport", session.transport === "" ? "none yet" : session.transport],
      ["Devices", devices.length === 0 ? sessionDevices(session) : `\n${devices.join("\n")}`],
      ["Started", `${ageOf(session.startedAt, now)} ago`],
      ...(session.notParked === "" ? [] : [["Not parked", session.notParked] as const]),
      [
        "Calls",
        `${session.commands}, of them ${countOf(session.launches, "launch", "launches")} and ${countOf(session.waits, "wait")}`,
      ],
    ],
  };
}

function table<T>(columns: readonly Column<T>[], items: readonly T[]): string {
  if (items.length === 0) return "none";
  const shown = columns.filter((column) => !column.isWide);
  return `\n${layOut(shown, items, { headers: true }).lines.join("\n")}`;
}

function eventTable(events: readonly Event[]): string {
  return table(eventColumns(Math.floor(Date.now() / 1000)), events);
}
