// SPDX-License-Identifier: Apache-2.0

// States as words with a colour. Green means known to be in order, grey unknown.

import { ClaimState, type Node, NodeState, ServiceClass, SessionState } from "@millpond/api/browser";
import { type Gpu, type GpuState, gpuState } from "../state/nodes.ts";
import type { Texts } from "../texts/english.ts";
import { texts } from "../texts/texts.ts";
import { Badge, type Tone } from "./view.tsx";

const gpuTones: Readonly<Record<GpuState, Tone>> = {
  ok: "good",
  cordoned: "warn",
  unhealthy: "bad",
  unknown: "dim",
};

export function gpuStateWord(gpu: Gpu): string {
  return texts().states[gpuState(gpu)];
}

export function GpuBadge({ gpu }: { readonly gpu: Gpu }) {
  return <Badge tone={gpuTones[gpuState(gpu)]}>{gpuStateWord(gpu)}</Badge>;
}

export function nodeStateWord({ state, cordoned }: Node): string {
  const { states } = texts();
  const contact = state === NodeState.READY ? states.ready : states.notReady;
  return cordoned ? `${contact}, ${states.cordoned}` : contact;
}

export function NodeBadge({ node }: { readonly node: Node }) {
  const tone = node.state !== NodeState.READY ? "dim" : node.cordoned ? "warn" : "good";
  return <Badge tone={tone}>{nodeStateWord(node)}</Badge>;
}

type StateWord = keyof Texts["states"];

interface Shown {
  readonly word: StateWord;
  readonly tone: Tone;
}

/** Also handles states that only later controllers know. */
const unknown: Shown = { word: "unknown", tone: "dim" };

const claimStates: Readonly<Record<number, Shown>> = {
  [ClaimState.PENDING]: { word: "pending", tone: "warn" },
  [ClaimState.BOUND]: { word: "bound", tone: "good" },
  [ClaimState.RELEASED]: { word: "released", tone: "dim" },
  [ClaimState.FAILED]: { word: "failed", tone: "bad" },
  [ClaimState.DORMANT]: { word: "dormant", tone: "dim" },
};

export function claimStateWord(state: ClaimState): string {
  return texts().states[(claimStates[state] ?? unknown).word];
}

export function ClaimBadge({ state }: { readonly state: ClaimState }) {
  return <Badge tone={(claimStates[state] ?? unknown).tone}>{claimStateWord(state)}</Badge>;
}

const sessionStates: Readonly<Record<number, Shown>> = {
  [SessionState.ASSIGNED]: { word: "assigned", tone: "warn" },
  [SessionState.CONNECTED]: { word: "connected", tone: "good" },
  [SessionState.CLOSING]: { word: "closing", tone: "warn" },
};

export function sessionStateWord(state: SessionState): string {
  return texts().states[(sessionStates[state] ?? unknown).word];
}

export function SessionBadge({ state }: { readonly state: SessionState }) {
  return <Badge tone={(sessionStates[state] ?? unknown).tone}>{sessionStateWord(state)}</Badge>;
}

const classWords: Readonly<Record<number, keyof Texts["classes"]>> = {
  [ServiceClass.BURSTABLE]: "burstable",
  [ServiceClass.BEST_EFFORT]: "bestEffort",
};

export function classWord(serviceClass: ServiceClass): string {
  return texts().classes[classWords[serviceClass] ?? "guaranteed"];
}
