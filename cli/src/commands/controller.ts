// SPDX-License-Identifier: Apache-2.0

import { homedir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { millpondError } from "@millpond/api";
import { defaultListen, startController } from "@millpond/controller";
import { exitStatus } from "../command-table.ts";
import { runService } from "../service-process.ts";

const usage = `Usage: millpond controller [--state DIR] [--listen ${defaultListen}]
                           [--tls-cert FILE --tls-key FILE | --tls-names NAME,...]

Runs the controller of a pool until SIGTERM or SIGINT. --state is where the state and the tokens are kept
(default ~/.local/state/millpond/controller); --listen: port 0 takes a free one. Beyond loopback it
serves with TLS: with the certificate and key that are given (PEM), else with one of the pool's own authority, whose
certificate, tls/ca.crt in the state, clients name in MILLPOND_CA; --tls-names are more names of this machine for it.
`;

/** `millpond controller`: a controller as this process. It reads its own arguments. */
export function run(_values: object, args: readonly string[]): Promise<number> {
  return runService(async () => {
    const values = parse(args);
    if (values.help) {
      process.stdout.write(usage);
      return exitStatus.ok;
    }
    const stopRequested = new Promise<void>((resolve) => {
      for (const event of ["SIGTERM", "SIGINT", "disconnect"] as const) process.once(event, () => resolve());
    });
    await using controller = await startController({
      stateDirectory: values.state ?? join(homedir(), ".local", "state", "millpond", "controller"),
      listen: values.listen ?? defaultListen,
      tlsCertificate: values["tls-cert"],
      tlsKey: values["tls-key"],
      tlsNames: (values["tls-names"] ?? "").split(",").filter((name) => name !== ""),
    });
    process.send?.({ type: "ready", url: controller.url });
    await stopRequested;
    return exitStatus.ok;
  });
}

function parse(args: readonly string[]) {
  try {
    return parseArgs({
      args: [...args],
      options: {
        help: { type: "boolean", short: "h", default: false },
        state: { type: "string" },
        listen: { type: "string" },
        "tls-cert": { type: "string" },
        "tls-key": { type: "string" },
        "tls-names": { type: "string" },
      },
    }).values;
  } catch (cause) {
    const why = cause instanceof Error ? cause.message.replace(/\.$/, "") : String(cause);
    throw millpondError("MILLPOND_E_INVALID", why, { remedy: "See `millpond controller --help`.", cause });
  }
}
