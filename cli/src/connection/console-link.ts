// SPDX-License-Identifier: Apache-2.0

import type { Connection } from "./connection.ts";

export interface ConsoleLink {
  readonly address: string;
  /** The address with a code that is valid for one login. */
  readonly link: string;
  /** Unix seconds. */
  readonly expiresAt: number;
}

/** Creates a link to the web console of one controller; only that controller knows the code. */
export async function makeConsoleLink({ access, controller }: Connection): Promise<ConsoleLink> {
  const { code, expiresAt } = await access.createLoginCode({});
  const address = `${controller.replace(/\/+$/, "")}/console/`;
  // After the #: browsers do not send that part, so no log contains it.
  return { address, link: `${address}login#${code}`, expiresAt: Number(expiresAt) };
}
