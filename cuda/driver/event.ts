// SPDX-License-Identifier: Apache-2.0
/** Events. */
import type { Group } from "../schema.ts";

const event = { kind: "handle", of: "event" } as const;
const stream = { kind: "stream" } as const;

export const events = {
  cuEventCreate: {
    style: "async",
    left: { makes: "phEvent" },
    arguments: {
      phEvent: { kind: "creates", of: "event", traits: { flags: "Flags" } },
      // An interprocess event records no time.
      Flags: { kind: "value", bits: 0x7, implies: [0x4, 0x2] },
    },
  },
  cuEventDestroy: { style: "same", as: "cuEventDestroy_v2" },
  cuEventDestroy_v2: {
    style: "async",
    left: "books",
    arguments: { hEvent: { kind: "destroys", of: "event" } },
  },
  cuEventRecord: {
    style: "async",
    left: "books",
    precondition: "recordedEvent",
    arguments: { hEvent: event, hStream: stream },
  },
  cuEventRecordWithFlags: {
    style: "async",
    left: "books",
    precondition: "recordedEvent",
    arguments: { hEvent: event, hStream: stream, flags: { kind: "value", bits: 0x1 } },
  },
  cuEventQuery: { style: "wait", left: "books", precondition: "eventAnswer", arguments: { hEvent: event } },
  cuEventSynchronize: {
    style: "wait",
    command: "EventSync",
    precondition: "eventAnswer",
    arguments: { hEvent: event },
  },
  cuEventElapsedTime: {
    style: "wait",
    left: "books",
    arguments: { pMilliseconds: { kind: "out" }, hStart: event, hEnd: event },
  },
  cuEventElapsedTime_v2: {
    style: "wait",
    left: "books",
    arguments: { pMilliseconds: { kind: "out" }, hStart: event, hEnd: event },
  },
} as const satisfies Group;
