// SPDX-License-Identifier: Apache-2.0

export { nodeLostAfterMs } from "./agents/node-liveness.ts";
export { type CancelTimer, type Clock, systemClock } from "./timers/clock.ts";
export { runControllerCommand } from "./command.ts";
export { type Controller, startController } from "./controller.ts";
export { type ControllerOptions, defaultListen } from "./options.ts";
export { poolKeyFile } from "./state/pool-key.ts";
export { backUpStopped } from "./store/recovery/backup.ts";
export { downgradeDatabase, downgradeDirectory } from "./store/recovery/downgrade.ts";
export { resumeDatabase, restoreBackup } from "./store/recovery/restore.ts";
export { type CopiedRows, copyStore, type StoreCopy } from "./store/store-copy.ts";
export { type TokenFile, tokenFileName } from "./auth/tokens.ts";
