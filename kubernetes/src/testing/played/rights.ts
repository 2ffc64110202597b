// SPDX-License-Identifier: Apache-2.0

// The rights that manifests give to service accounts, and which of them were used.

import type { KubernetesObject } from "@kubernetes/client-node";

interface Rule {
  readonly apiGroups: readonly string[];
  readonly resources: readonly string[];
  readonly resourceNames?: readonly string[];
  readonly verbs: readonly string[];
}

interface Role extends KubernetesObject {
  readonly rules?: readonly Rule[];
}

export interface Request {
  /** Name of the service account. */
  readonly account: string;
  readonly verb: string;
  /** `group/resource` or `group/resource/subresource`. */
  readonly kind: string;
  readonly namespace: string;
  readonly name: string;
}

/** `group/resource verb`. */
export function rightOf({ kind, verb }: Pick<Request, "kind" | "verb">): string {
  return `${kind} ${verb}`;
}

/** Our manifests bind each role to the account whose name equals the role's, or is a prefix of it. */
export class Rights {
  readonly #roles: readonly Role[];
  readonly #used = new Map<string, Set<string>>();

  constructor(manifests: readonly KubernetesObject[]) {
    this.#roles = manifests.filter(({ kind }) => kind === "ClusterRole" || kind === "Role");
  }

  /** Whether the account has the right; records its use. */
  allows(request: Request): boolean {
    const { account } = request;
    const isAllowed = this.has(request);
    if (isAllowed) this.#used.set(account, (this.#used.get(account) ?? new Set()).add(rightOf(request)));
    return isAllowed;
  }

  /** Whether the account has the right. */
  has({ account, kind, verb, namespace, name }: Request): boolean {
    const [group = "", ...resource] = kind.split("/");
    return this.#of(account, namespace).some(
      ({ apiGroups, resources, resourceNames, verbs }) =>
        apiGroups.includes(group) &&
        resources.includes(resource.join("/")) &&
        verbs.includes(verb) &&
        (resourceNames === undefined || resourceNames.includes(name)),
    );
  }

  /** Rights of an account that it has not used. */
  unused(account: string): string[] {
    const all = this.#roles
      .filter(({ metadata }) => metadata?.name === account)
      .flatMap(({ rules = [] }) => rules)
      .flatMap(({ apiGroups, resources, verbs }) =>
        apiGroups.flatMap((group) =>
          resources.flatMap((resource) =>
            verbs.map((verb) => rightOf({ kind: `${group}/${resource}`, verb })),
          ),
        ),
      );
    return [...new Set(all)].filter((right) => this.#used.get(account)?.has(right) !== true).sort();
  }

  #of(account: string, namespace: string): readonly Rule[] {
    return this.#roles
      .filter(
        ({ kind, metadata }) =>
          isRoleOf(metadata?.name ?? "", account) &&
          (kind === "ClusterRole" || metadata?.namespace === namespace),
      )
      .flatMap(({ rules = [] }) => rules);
  }
}

function isRoleOf(name: string, account: string): boolean {
  return name === account || name.startsWith(`${account}-`);
}
