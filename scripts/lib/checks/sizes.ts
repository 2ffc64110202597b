// SPDX-License-Identifier: Apache-2.0
// Limits of files, folders and classes: `npm run check -- lint` compares the tree with them. The exceptions may only shrink, but
// for folders of conformance programs, which have one file each.
import type { MemberRules } from "./class-members.ts";
import type { SizeRules } from "./size-rules.ts";

export const sizeRules: SizeRules = {
  maxLines: 500,
  maxEntries: 25,
  longFiles: {},
  fullFolders: {
    "conformance/programs/driver": 51,
    "conformance/programs/runtime": 76,
  },
  data: ["conformance/expected", "native/protocol/corpus", "native/softgpu/corpus", "native/worker/corpus"],
};

export const memberRules: MemberRules = {
  maxPublic: 40,
  largeClasses: {},
};
