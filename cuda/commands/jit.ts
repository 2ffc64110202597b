// SPDX-License-Identifier: Apache-2.0
import type { Command } from "../schema.ts";

/** The outputs of the just-in-time compiler and of the linker. */
export const jitReply: NonNullable<Command["reply"]> = {
  fields: [
    ["threadsPerBlock", "u32"],
    ["wallTimeMs", "f32"],
    ["infoLogBytes", "u32"],
    ["errorLogBytes", "u32"],
  ],
  tails: ["info", "error"],
};
