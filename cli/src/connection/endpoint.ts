// SPDX-License-Identifier: Apache-2.0

/** The address of the controller, and the source of that address. */
export interface Endpoint {
  /** Base URL; several that share a state, separated by commas. */
  readonly controller: string;
  /** Empty: none. */
  readonly token: string;
  /** For display: `--controller`, `MILLPOND_CONTROLLER`, or the context. */
  readonly source: string;
  /** The authority to trust, PEM; absent: the machine's authorities. */
  readonly ca?: string | undefined;
  /** Name of the current context if there are others, for which the user may have intended a change. */
  readonly oneOfSeveral?: string | undefined;
  /** The reason for changes, for the audit; absent: none given. */
  readonly reason?: string | undefined;
}
