// SPDX-License-Identifier: Apache-2.0

import { logDestinationOptions, logLineOptions, toleratingWriteErrors } from "@millpond/platform";
import { type Logger, pino } from "pino";

export const logLevels = ["trace", "debug", "info", "warn", "error", "silent"] as const;

export type LogLevel = (typeof logLevels)[number];

/** JSON lines on standard error. */
export function makeLog(level: LogLevel): Logger {
  return pino(
    { ...logLineOptions("controller"), level },
    toleratingWriteErrors(pino.destination(logDestinationOptions)),
  );
}
