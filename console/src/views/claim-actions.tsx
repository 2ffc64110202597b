// SPDX-License-Identifier: Apache-2.0

import { useState } from "preact/hooks";
import { type Claim, ClaimState, parsePercent, parseSize } from "@millpond/api/browser";
import { Action } from "../parts/action.tsx";
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
      <Action
        label={t.actions.release}
        title={`${t.actions.release}: ${name}`}
        command={`millpond release ${name}`}
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

function Resize({ claim: { name }, onDone }: { readonly claim: Claim; readonly onDone: () => void }) {
  const t = texts();
  const [gpus, setGpus] = useState("");
  const [memory, setMemory] = useState("");
  const [compute, setCompute] = useState("");
  const options = [
    ["-n", gpus],
    ["-m", memory],
    ["-c", compute],
  ]
    .filter(([, value]) => value !== "")
    .map(([flag, value]) => ` ${flag} ${value}`);
  return (
    <Action
      label={t.actions.resize}
      title={`${t.actions.resize}: ${name}`}
      command={`millpond resize ${name}${options.join("")}`}
      onDo={async ({ headers }) => {
        const request = {
          name,
          gpus: gpus === "" ? 0 : Number(gpus),
          memoryBytes: memory === "" ? 0n : parseSize(memory),
          computePercent: compute === "" ? 0 : parsePercent(compute),
        };
        await claims.resizeClaim(request, { headers });
        onDone();
      }}
    >
      <p>{t.resizeMeans}</p>
      <label class="field">
        {t.gpus}
        <input
          type="number"
          min={1}
          max={64}
          value={gpus}
          onInput={({ currentTarget }) => setGpus(currentTarget.value)}
        />
      </label>
      <label class="field">
        {t.memoryEach}
        <input
          type="text"
          placeholder="8Gi"
          pattern="[0-9.]+[KMGTkmgt]?i?B?"
          value={memory}
          onInput={({ currentTarget }) => setMemory(currentTarget.value)}
        />
      </label>
      <label class="field">
        {t.shareEach}
        <input
          type="text"
          placeholder="50%"
          pattern="[0-9.]+%?"
          value={compute}
          onInput={({ currentTarget }) => setCompute(currentTarget.value)}
        />
      </label>
    </Action>
  );
}
