// SPDX-License-Identifier: Apache-2.0

export { main } from "./main.ts";
export { findNativeFiles } from "./native-files.ts";
export type { NativeFiles } from "./native-files.ts";
export { runTool, toCount, UsageError } from "./tool.ts";
