// SPDX-License-Identifier: Apache-2.0

// The shared data of the parts of a pool in a cluster, created before the first of them starts: tokens, and a
// certificate for the controller. It is created once, in a Secret; an existing Secret is left as it is, so an upgrade
// changes nothing.

import { randomBytes } from "node:crypto";
import { makeAuthority, makePoolKeyText, makeServerCertificate } from "@millpond/platform";
import { type Cluster, unlessStatus } from "./cluster/cluster.ts";

export interface SetupOptions {
  readonly cluster: Cluster;
  readonly namespace: string;
  /** Name of the Secret. */
  readonly name: string;
  /** Host name of the controller's Service; its port is 7170. */
  readonly controllerHost: string;
  /** Whether several controllers share a database: each has a host name of its own, and all have one pool key. */
  readonly hasDatabase?: boolean;
}

/** The most controllers that share a database. */
const maxControllers = 5;

/** Ten years, like the authority that a controller creates. */
const lifetimeMs = 3650 * 86_400_000;

/**
 * Creates the Secret if it is missing.
 *
 * @returns whether it was created now
 */
export async function setUp(options: SetupOptions): Promise<boolean> {
  const { cluster, namespace, name, controllerHost, hasDatabase = false } = options;
  if ((await unlessStatus(cluster.core.readNamespacedSecret({ namespace, name }), 404)) !== undefined)
    return false;
  const now = Date.now();
  const validity = { from: new Date(now - 300_000), to: new Date(now + lifetimeMs) };
  const authority = makeAuthority("Millpond", validity);
  const server = makeServerCertificate(
    authority,
    [controllerHost, `${controllerHost}.cluster.local`, ...(hasDatabase ? podHosts(namespace) : [])],
    validity,
  );
  const token = (role: string): string => `mp-${role}-${randomBytes(32).toString("base64url")}`;
  const body = {
    metadata: { name, namespace },
    type: "Opaque",
    stringData: {
      controller: `https://${controllerHost}:7170`,
      token: token("admin"),
      "agent-token": token("agent"),
      "ca.crt": authority.certificate,
      "tls.crt": server.certificate,
      "tls.key": server.key,
      ...(hasDatabase ? { "pool.key": makePoolKeyText() } : {}),
    },
  };
  // When several instances do this at the same time, one succeeds.
  return (await unlessStatus(cluster.core.createNamespacedSecret({ namespace, body }), 409)) !== undefined;
}

/** The host names of the pods of the StatefulSet `millpond-controller`, by the Service `millpond-controllers`. */
function podHosts(namespace: string): string[] {
  return Array.from(
    { length: maxControllers },
    (_, index) => `millpond-controller-${index}.millpond-controllers.${namespace}.svc`,
  );
}
