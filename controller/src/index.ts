// SPDX-License-Identifier: Apache-2.0

export type { CancelTimer, Clock } from "./clock.ts";
export { runControllerCommand } from "./command.ts";
export { type Controller, startController } from "./controller.ts";
export { type ControllerOptions, defaultListen } from "./options.ts";
export { type CopiedRows, copyStore, type StoreCopy } from "./store/store-copy.ts";
export { type TokenFile, tokenFileName } from "./tokens.ts";
