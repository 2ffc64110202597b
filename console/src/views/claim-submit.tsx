// SPDX-License-Identifier: Apache-2.0

import { useState } from "preact/hooks";
import { parseDuration } from "@millpond/api/browser";
import { Action } from "../parts/action.tsx";
import { Field, NameField } from "../parts/field.tsx";
import { shellWord } from "../parts/shell.ts";
import { noSize, parseSizeText, SizeFields } from "../parts/size.tsx";
import { claims } from "../state/calls.ts";
import { addressOf, go } from "../state/place.ts";
import { texts } from "../texts/texts.ts";

/** A claim that lives until it is released, or until its lease expires. */
export function SubmitClaim() {
  const t = texts();
  const [name, setName] = useState("");
  const [queue, setQueue] = useState("");
  const [lease, setLease] = useState("1h");
  const [size, setSize] = useState(noSize);
  return (
    <Action
      label={t.actions.submit}
      title={t.submitTitle}
      command={applyCommand({ kind: "Claim", name, lease, queue, ...size })}
      onDo={async ({ headers }) => {
        const leaseSeconds = parseDuration(lease);
        await claims.createClaim(
          { claim: { name, queue, leaseSeconds, ...parseSizeText(size) } },
          { headers },
        );
        go(addressOf("claims", name));
      }}
    >
      <p>{t.submitMeans}</p>
      <NameField value={name} onChange={setName} required />
      <SizeFields of={size} onChange={setSize} />
      <NameField label={t.queue} value={queue} onChange={setQueue} placeholder="default" />
      <Field label={t.leaseFor} value={lease} onChange={setLease} required />
    </Action>
  );
}

/** JSON is also valid YAML, and fits on one line. */
function applyCommand({ gpus, ...members }: Readonly<Record<string, string>>): string {
  const given = Object.entries(members).filter(([, value]) => value !== "");
  const count = gpus === undefined || gpus === "" ? {} : { gpus: Number(gpus) };
  const json = JSON.stringify({ ...Object.fromEntries(given), ...count });
  return `printf %s ${shellWord(json)} | millpond apply -f -`;
}
