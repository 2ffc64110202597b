// SPDX-License-Identifier: Apache-2.0

import type { MessageInitShape } from "@bufbuild/protobuf";
import type { DescribeClaimRequest, DescribeClaimResponseSchema } from "@millpond/api";
import type { Admission } from "./admission.ts";
import type { DiscoveredDevice } from "../devices/devices.ts";
import { deviceRate } from "../reports/report.ts";
import type { SessionRecord } from "../run-directory/run-directory.ts";
import type { Worker } from "../workers/worker.ts";
import type { CardFigures } from "../workers/worker-process.ts";

/** The members of a worker with a session that are used in a description. */
interface DescribedWorker extends Pick<Worker, "client" | "compute"> {
  readonly session: Pick<SessionRecord, "session" | "claim" | "epoch" | "startedAt">;
  readonly figures: Pick<Worker["figures"], "memoryUsedBytes">;
}

/** The data from which a description is built. */
export interface ClaimSources {
  readonly admission: Admission;
  readonly sessions: () => readonly DescribedWorker[];
  readonly devices: readonly DiscoveredDevice[];
  /** Measurements of a device by the management library; undefined: there are none. */
  readonly figuresOf: (uuid: string) => CardFigures | undefined;
}

/**
 * Serves NodeService/DescribeClaim: describes the claim of the view ticket, and nothing of other claims on its devices.
 *
 * @throws MILLPOND_E_NODE_NOT_READY and the MILLPOND_E_TICKET_… errors
 */
export function describeClaim(
  { admission, sessions, devices, figuresOf }: ClaimSources,
  { viewTicket }: DescribeClaimRequest,
): MessageInitShape<typeof DescribeClaimResponseSchema> {
  const payload = admission.admitView(viewTicket, Math.floor(Date.now() / 1000));
  const { claim, epoch, node } = payload;
  const granted = admission.sizesOf(payload)?.devices ?? payload.devices;
  const own = sessions().filter(({ session }) => session.claim === claim && session.epoch === epoch);

  /** Returns the utilisation of a device by `of`, in percent of the claim's share. */
  const utilizationOf = (of: typeof own, uuid: string, computePercent: number): number | undefined => {
    const share = computePercent === 0 ? 1 : computePercent / 100;
    let rate = 0;
    for (const worker of of) {
      if (worker.client === null) continue;
      const its = deviceRate(worker, uuid, figuresOf(uuid));
      if (its === undefined) return undefined;
      rate += its;
    }
    return Math.min(Math.round((rate / share) * 100), 100);
  };

  return {
    claim,
    node,
    epoch: BigInt(epoch),
    devices: granted.flatMap(({ uuid, memoryBytes, computePercent }) => {
      const device = devices.find(({ description }) => description.uuid === uuid);
      if (device === undefined) return [];
      const { description, driverVersion, cudaVersion, topology, index } = device;
      const utilizationPercent = utilizationOf(own, uuid, computePercent);
      const isWhole = memoryBytes >= description.memoryBytes && admission.hasAlone(claim, uuid);
      const card = isWhole ? figuresOf(uuid) : undefined;
      return {
        uuid,
        name: description.name,
        kind: description.kind,
        pciBusId: description.pciBusId,
        computeCapability: description.computeCapability,
        multiprocessors: description.multiprocessors,
        index,
        driverVersion,
        cudaVersion,
        ...topology,
        nvlinks: description.nvlinks,
        memoryBytes: BigInt(memoryBytes),
        computePercent,
        memoryUsedBytes: BigInt(sum(own.map(({ figures }) => figures.memoryUsedBytes.get(uuid) ?? 0))),
        ...(utilizationPercent !== undefined && { utilizationPercent }),
        ...(card !== undefined && { card: present(card) }),
      };
    }),
    sessions: own.flatMap((worker) => {
      const { session, client, figures } = worker;
      if (client === null) return [];
      return {
        id: session.session,
        pid: client.programPid === 0 ? client.clientPid : client.programPid,
        program: client.program,
        startedAt: BigInt(session.startedAt),
        devices: granted.map(({ uuid, computePercent }) => {
          const utilizationPercent = utilizationOf([worker], uuid, computePercent);
          return {
            uuid,
            memoryUsedBytes: BigInt(figures.memoryUsedBytes.get(uuid) ?? 0),
            ...(utilizationPercent !== undefined && { utilizationPercent }),
          };
        }),
      };
    }),
  };
}

/** A copy without the members that are undefined. */
function present(figures: CardFigures): { [K in keyof CardFigures]?: number } {
  return Object.fromEntries(Object.entries(figures).filter(([, value]) => value !== undefined));
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}
