// SPDX-License-Identifier: Apache-2.0

import { type ClaimSpec, defaultClaimSpec } from "../domain/claim-spec.ts";
import { readMembers, writeMembers } from "../domain/members.ts";

/** The members that differ from their defaults, except the name, which is the key. */
export function writeClaimSpec(spec: ClaimSpec): string {
  return writeMembers(spec, defaultClaimSpec, ["name"]);
}

/** @throws MILLPOND_E_STATE_BROKEN */
export function readClaimSpec(name: string, text: string): ClaimSpec {
  return { ...readMembers(text, defaultClaimSpec), name };
}
