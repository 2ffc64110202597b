// SPDX-License-Identifier: Apache-2.0

export { type Connection, connect } from "./connection/connection.ts";
export { commandNames } from "./command-table/command-table.ts";
export { renderCompletion } from "./help/completion.ts";
export { main } from "./main.ts";
export { renderManPages } from "./help/man-page.ts";
export { findNativeFiles } from "./host/native-files.ts";
export type { NativeFiles } from "./host/native-files.ts";
export { runTool, toCount, UsageError } from "./host/tool.ts";
