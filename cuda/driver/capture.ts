// SPDX-License-Identifier: Apache-2.0
/** Stream capture. While no capture is active, which the client knows, queries about it cost nothing. */
import type { Group } from "../schema.ts";

const local = { style: "local" } as const;
const capture = {
  style: "hand",
  why: "the client enforces the threads' capture modes; it queries the worker only while a capture is open",
} as const;

export const captures = {
  cuStreamBeginCapture: capture,
  cuStreamBeginCapture_v2: capture,
  cuStreamBeginCaptureToGraph: capture,
  cuStreamEndCapture: capture,
  cuStreamIsCapturing: capture,
  cuStreamGetCaptureInfo: capture,
  cuStreamGetCaptureInfo_v2: capture,
  cuStreamGetCaptureInfo_v3: capture,
  cuStreamUpdateCaptureDependencies: capture,
  cuStreamUpdateCaptureDependencies_v2: capture,
  cuThreadExchangeStreamCaptureMode: local,
} as const satisfies Group;
