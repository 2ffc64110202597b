// SPDX-License-Identifier: Apache-2.0

// Writes docs/reference/reasons.md from the table of reasons: `npm run generate -w api`.

import { writeFileSync } from "node:fs";
import { reasonArgs, type ReasonCode } from "./args.ts";
import { mayKnowAll, mayKnowNone, renderReason } from "./render.ts";
import { sampleReason } from "./sample.ts";

export const reasonsDocUrl: URL = new URL("../../../docs/reference/reasons.md", import.meta.url);

/** The current text of the page. */
export function renderReasonsDoc(): string {
  const rows = (Object.keys(reasonArgs) as ReasonCode[]).map((code) => {
    const args = Object.entries<string>(reasonArgs[code]).map(([name, kind]) => `\`${name}\`: ${kind}`);
    const sample = sampleReason(code);
    const all = renderReason(sample, mayKnowAll);
    const none = renderReason(sample, mayKnowNone);
    const shown = none === all ? all : `${all}<br>*or* ${none}`;
    return `| \`${code}\` | ${args.join("<br>") || "none"} | ${shown.replaceAll("|", "\\|")} |`;
  });
  return `<!-- Generated from api/src/reasons by \`npm run generate -w api\`. Do not edit. -->

# Reasons

The reasons for the state of a claim, for the refusal of a call, and the content of events are data: a code and arguments
(\`Reason\` in [reason.proto](../../api/proto/millpond/v1/reason.proto)). \`millpond why -o json\` prints both as \`why\`;
\`millpond get events -o json\` as \`detail\`. The sentence beside them is rendered from them and may change;
a code keeps its meaning.

Sizes are bytes, durations seconds, \`gpuMilli\` thousandths of a device. \`?\` marks an argument that may be absent.
\`holder\` is a claim or a gang, \`{"kind", "name", "tenant"}\`: for a reader who may not know it, name and tenant are
empty, and the sentence says "a claim of another tenant".

| code | arguments | for example |
|---|---|---|
${rows.join("\n")}
`;
}

if (import.meta.main) {
  writeFileSync(reasonsDocUrl, renderReasonsDoc());
}
