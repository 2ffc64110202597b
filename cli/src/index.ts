// SPDX-License-Identifier: Apache-2.0

export { type Connection, connect } from "./connection.ts";
export { commandNames } from "./command-table.ts";
export { renderCompletion } from "./completion.ts";
export { main } from "./main.ts";
export { renderManPages } from "./man-page.ts";
export { findNativeFiles } from "./native-files.ts";
export type { NativeFiles } from "./native-files.ts";
export { runTool, toCount, UsageError } from "./tool.ts";
