// SPDX-License-Identifier: Apache-2.0

import { useState } from "preact/hooks";
import { type Claim, ClaimState } from "@millpond/api/browser";
import { Action } from "../parts/action.tsx";
import { Field } from "../parts/field.tsx";
import { nameWord, shellWord } from "../parts/shell.ts";
import { noSize, parseSizeText, SizeFields } from "../parts/size.tsx";
import { claims } from "../state/calls.ts";
import { texts } from "../texts/texts.ts";

export function ClaimActions({ claim, onDone }: { readonly claim: Claim; readonly onDone: () => void }) {
  const t = texts();
  if (claim.state === ClaimState.RELEASED || claim.state === ClaimState.FAILED) {
    return null;
  }
  const { name, openSessions } = claim;
  return (
    <div class="buttons">
      <Resize claim={claim} onDone={onDone} />
      <Prioritize claim={claim} onDone={onDone} />
      <Action
        label={t.actions.release}
        title={`${t.actions.release}: ${name}`}
        command={`millpond release ${nameWord(name)}`}
        onDo={async ({ headers }) => {
          await claims.releaseClaim({ name }, { headers });
          onDone();
        }}
      >
        <p>{t.releaseMeans}</p>
        {openSessions > 0 && <p class="trouble">{t.releaseEnds(openSessions)}</p>}
      </Action>
    </div>
  );
}

function Prioritize({
  claim: { name, priority, gang },
  onDone,
}: {
  readonly claim: Claim;
  readonly onDone: () => void;
}) {
  const t = texts();
  const [text, setText] = useState("");
  return (
    <Action
      label={t.actions.prioritize}
      title={`${t.actions.prioritize}: ${name}`}
      command={`millpond prioritize ${nameWord(name)} --priority ${shellWord(text)}`}
      onOpen={() => setText(String(priority))}
      onDo={async ({ headers }) => {
        await claims.prioritizeClaim({ name, priority: Number(text) }, { headers });
        onDone();
      }}
    >
      <p>{t.prioritizeMeans}</p>
      {gang !== "" && <p>{t.prioritizeGang(gang)}</p>}
      <Field label={t.priority} value={text} onChange={setText} required pattern="-?[0-9]{1,4}" />
    </Action>
  );
}

function Resize({ claim: { name }, onDone }: { readonly claim: Claim; readonly onDone: () => void }) {
  const t = texts();
  const [size, setSize] = useState(noSize);
  const options = [
    ["-n", size.gpus],
    ["-m", size.memory],
    ["-c", size.compute],
  ]
    .filter(([, value]) => value !== "")
    .map(([flag, value = ""]) => ` ${flag} ${shellWord(value)}`);
  return (
    <Action
      label={t.actions.resize}
      title={`${t.actions.resize}: ${name}`}
      command={`millpond resize ${nameWord(name)}${options.join("")}`}
      onDo={async ({ headers }) => {
        await claims.resizeClaim({ name, ...parseSizeText(size) }, { headers });
        onDone();
      }}
    >
      <p>{t.resizeMeans}</p>
      <SizeFields of={size} onChange={setSize} />
    </Action>
  );
}
