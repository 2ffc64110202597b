// SPDX-License-Identifier: Apache-2.0

// Renders reasons as text, and redacts their data for a reader. Both depend on the kind of an argument: a sentence gets
// claims and gangs only as text that this file has rendered for its reader.

import { type HolderRef, type Kind, type Reason, reasonArgs } from "./args.ts";
import { sentences } from "./english.ts";

/** Which claims and gangs a reader may know about. */
export type MayKnow = (holder: HolderRef) => boolean;

export const mayKnowAll: MayKnow = () => true;

export const mayKnowNone: MayKnow = () => false;

/** A text of an earlier release is only shown to readers with access to everything. */
const anything: HolderRef = { kind: "claim", name: "", tenant: "" };

const hiddenText = "recorded by an earlier release";

/** The sentence for a reader, without a full stop. */
export function renderReason(reason: Reason, mayKnow: MayKnow): string {
  const shown = mapArgs(reason, (value, kind) => {
    switch (kind) {
      case "holder":
        return nameOf(value as HolderRef, mayKnow);
      case "holders":
        return (value as readonly HolderRef[]).map((each) => nameOf(each, mayKnow));
      case "unsafeText":
        return mayKnow(anything) ? value : hiddenText;
      case "reason":
        return renderReason(value as Reason, mayKnow);
      default:
        return value;
    }
  });
  // The table determines the argument types for each code; their union cannot be expressed as a type.
  const sentence = sentences[reason.code] as (args: Readonly<Record<string, unknown>>) => string;
  return sentence(shown);
}

/** The reason as data without hidden names. */
export function redactReason(reason: Reason, mayKnow: MayKnow): Reason {
  if (mayKnow === mayKnowAll) {
    return reason;
  }
  const args = mapArgs(reason, (value, kind) => {
    switch (kind) {
      case "holder":
        return redact(value as HolderRef, mayKnow);
      case "holders":
        return (value as readonly HolderRef[]).map((each) => redact(each, mayKnow));
      case "unsafeText":
        return mayKnow(anything) ? value : hiddenText;
      case "reason":
        return redactReason(value as Reason, mayKnow);
      default:
        return value;
    }
  });
  return { code: reason.code, args } as unknown as Reason;
}

/** Names and kinds of the arguments, by code: precomputed, because reasons are made and stored with every change. */
const argumentsOf: ReadonlyMap<string, readonly (readonly [name: string, kind: Kind])[]> = new Map(
  Object.entries<Readonly<Record<string, string>>>(reasonArgs).map(([code, kinds]) => [
    code,
    Object.entries(kinds).map(([name, kind]) => [name, kind.replace("?", "") as Kind] as const),
  ]),
);

/** Maps the arguments by their kinds; undefined ones stay undefined. */
export function mapArgs(
  { code, args }: Reason,
  map: (value: unknown, kind: Kind) => unknown,
): Readonly<Record<string, unknown>> {
  const given = args as Readonly<Record<string, unknown>>;
  const mapped: Record<string, unknown> = {};
  for (const [name, kind] of argumentsOf.get(code) ?? []) {
    const value = given[name];
    mapped[name] = value === undefined ? undefined : map(value, kind);
  }
  return mapped;
}

function nameOf(holder: HolderRef, mayKnow: MayKnow): string {
  return holder.name !== "" && mayKnow(holder)
    ? `${holder.kind} ${holder.name}`
    : `a ${holder.kind} of another tenant`;
}

function redact(holder: HolderRef, mayKnow: MayKnow): HolderRef {
  return mayKnow(holder) ? holder : { kind: holder.kind, name: "", tenant: "" };
}
