// SPDX-License-Identifier: Apache-2.0

import type { ChildProcess } from "node:child_process";
import type { Logger } from "pino";
import type { DiscoveredDevice } from "./devices.ts";
import type { WorkerContainment } from "../workers/worker-containment.ts";
import { type CardFigures, type DeviceHealthMessage, watchDevices } from "../workers/worker-process.ts";

export interface DeviceHealthOptions {
  readonly worker: string;
  readonly devices: readonly Pick<DiscoveredDevice, "driver" | "description">[];
  /** Silence after which a driver counts as hung. */
  readonly silenceMs: number;
  /** Wait before a watcher that has ended is restarted. */
  readonly restartMs: number;
  /** Containment of the watchers. */
  readonly containment: WorkerContainment;
  readonly log: Logger;
  /** Called when a device has become unhealthy, or healthy again. */
  readonly onChange: () => void;
}

/** A fault of a device that its driver has reported. */
interface Fault {
  /** Number of the latest report about the device, counted from 1 over all devices of this agent process. */
  readonly number: number;
  /** Reason of the first report: later ones may follow from the same fault. */
  readonly reason: string;
}

/** Health of the devices of one driver. */
interface Watch {
  readonly driver: string;
  /** Reasons of the unhealthy devices, by UUID. */
  ill: ReadonlyMap<string, string>;
  /** Measurements of the driver's management library, by UUID. */
  cards: ReadonlyMap<string, CardFigures>;
  /** Why the health of all devices is unknown; undefined: it is known. */
  silence: string | undefined;
  /** Why the last watcher ended; undefined: it is running. */
  failure: string | undefined;
  child: ChildProcess | undefined;
  silenceTimer: NodeJS.Timeout | undefined;
  restartTimer: NodeJS.Timeout | undefined;
}

/**
 * Tracks which devices must no longer be used. A separate process, the watcher, polls each driver: a driver may hang
 * when a card has failed. That must not block the agent, and silence counts as an answer.
 */
export class DeviceHealth {
  readonly #options: DeviceHealthOptions;
  readonly #driverOf: ReadonlyMap<string, string>;
  readonly #watches: ReadonlyMap<string, Watch>;
  /** Faults by UUID, until an operator clears them: no driver reports that its device is healthy again. */
  readonly #faults = new Map<string, Fault>();
  #lastFault = 0;
  #isStopped = false;

  constructor(options: DeviceHealthOptions) {
    this.#options = options;
    this.#driverOf = new Map(options.devices.map(({ driver, description }) => [description.uuid, driver]));
    const nothing = { silence: undefined, failure: undefined, child: undefined };
    const timers = { silenceTimer: undefined, restartTimer: undefined };
    this.#watches = new Map(
      options.devices.map(({ driver }) => [
        driver,
        { driver, ill: new Map(), cards: new Map(), ...nothing, ...timers },
      ]),
    );
  }

  start(): void {
    for (const watch of this.#watches.values()) {
      this.#ask(watch);
    }
  }

  stop(): void {
    this.#isStopped = true;
    for (const { child, silenceTimer, restartTimer } of this.#watches.values()) {
      clearTimeout(silenceTimer);
      clearTimeout(restartTimer);
      child?.kill("SIGKILL");
    }
  }

  /** Why a device must not be used; undefined: no reason is known. */
  illnessOf(uuid: string): string | undefined {
    const watch = this.#watches.get(this.#driverOf.get(uuid) ?? "");
    return watch?.silence ?? watch?.ill.get(uuid) ?? this.#faults.get(uuid)?.reason;
  }

  /** Latest measurements of a device by the management library; undefined: there are none, or its driver is silent. */
  figuresOf(uuid: string): CardFigures | undefined {
    const watch = this.#watches.get(this.#driverOf.get(uuid) ?? "");
    return watch?.silence === undefined && watch?.failure === undefined ? watch?.cards.get(uuid) : undefined;
  }

  /** Number of the fault of a device; 0: none was reported, or it was cleared. */
  faultOf(uuid: string): number {
    return this.#faults.get(uuid)?.number ?? 0;
  }

  /**
   * Clears a fault for an operator. A fault with another number came later: the operator has not seen it, so it stays.
   */
  clear(uuid: string, fault: number): void {
    if (this.faultOf(uuid) !== fault || fault === 0) return;
    this.#options.log.info({ device: uuid, reason: this.illnessOf(uuid) }, "a fault is cleared");
    this.#faults.delete(uuid);
    this.#options.onChange();
  }

  #ask(watch: Watch): void {
    const { worker, restartMs, containment, log } = this.#options;
    this.#expectWord(watch);
    watch.child = watchDevices({
      worker,
      driver: watch.driver,
      containment,
      onWord: (word) => this.#learn(watch, word),
      onEnd: (why) => {
        if (this.#isStopped) return;
        if (watch.failure !== why)
          log.warn({ driver: watch.driver, reason: why }, "devices are not monitored");
        watch.failure = why;
        watch.restartTimer = setTimeout(() => this.#ask(watch), restartMs);
      },
    });
  }

  #learn(watch: Watch, { ill, faults, cards }: DeviceHealthMessage): void {
    if (this.#isStopped) return;
    const hasBeenSilent = watch.silence !== undefined;
    const named = [...watch.ill.keys(), ...ill.keys(), ...faults.map(({ uuid }) => uuid)];
    const before = new Map(
      named.map((uuid) => [uuid, watch.ill.get(uuid) ?? this.#faults.get(uuid)?.reason]),
    );
    watch.ill = ill;
    watch.cards = cards;
    for (const { uuid, reason } of faults) {
      this.#lastFault += 1;
      this.#faults.set(uuid, { number: this.#lastFault, reason: this.#faults.get(uuid)?.reason ?? reason });
    }
    watch.silence = undefined;
    watch.failure = undefined;
    clearTimeout(watch.silenceTimer);
    watch.silenceTimer = undefined;
    this.#expectWord(watch);
    const changed = [...before].filter(([uuid, reason]) => reason !== this.illnessOf(uuid));
    for (const [device] of changed) {
      const reason = this.illnessOf(device);
      if (reason === undefined) this.#options.log.info({ device }, "a device has recovered");
      else this.#options.log.error({ device, reason }, "a device is unhealthy");
    }
    if (hasBeenSilent || changed.length > 0) this.#options.onChange();
  }

  /** Starts the timer after which all devices of the driver count as unhealthy. */
  #expectWord(watch: Watch): void {
    // Input that arrived while this process itself was suspended is read first.
    const giveUp = (): NodeJS.Immediate => setImmediate(() => this.#takeSilence(watch, timer));
    const timer = watch.silenceTimer ?? setTimeout(giveUp, this.#options.silenceMs);
    watch.silenceTimer = timer;
  }

  #takeSilence(watch: Watch, timer: NodeJS.Timeout): void {
    if (this.#isStopped || watch.silenceTimer !== timer) return;
    watch.silenceTimer = undefined;
    const { silenceMs, log, onChange } = this.#options;
    watch.silence =
      watch.failure === undefined
        ? `its driver has not answered for ${silenceMs / 1000} s`
        : `its driver cannot be asked: ${watch.failure}`;
    log.error({ driver: watch.driver, reason: watch.silence }, "lost monitoring of devices");
    onChange();
  }
}
