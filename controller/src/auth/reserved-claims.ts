// SPDX-License-Identifier: Apache-2.0

// Names, gangs and labels of claims that only administrators may write: by them an operator of Kubernetes finds the claims of its pods,
// and metrics are assigned to pods.

import { millpondError, quote } from "@millpond/api";
import type { Caller } from "../domain/caller.ts";
import type { ClaimSpec } from "../domain/claim-spec.ts";

const namePattern = /^(?:pod|rc)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?:-|$)/;
const gangPattern = /^pods-[0-9a-f]{20}$/;
const labelPrefix = "kubernetes/";

/** @throws MILLPOND_E_FORBIDDEN */
export function refuseReserved(
  { role }: Pick<Caller, "role">,
  { name, gang, labels }: Pick<ClaimSpec, "name" | "gang" | "labels">,
): void {
  if (role === "admin") return;
  const label = Object.keys(labels).find((key) => key.startsWith(labelPrefix));
  if (label !== undefined) throw reserved(`the label ${quote(label)}`);
  if (namePattern.test(name)) throw reserved(`the name ${quote(name)}`);
  if (namePattern.test(gang) || gangPattern.test(gang)) throw reserved(`the gang ${quote(gang)}`);
}

function reserved(what: string): Error {
  return millpondError("MILLPOND_E_FORBIDDEN", `${what} is for claims of Kubernetes' pods`, {
    remedy: "Choose another one; Millpond's operator creates the claims of pods.",
  });
}
