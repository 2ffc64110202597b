// SPDX-License-Identifier: Apache-2.0

/**
 * Queries of a driver library, answered by the worker program in a separate process, so that a broken driver cannot
 * take the agent down.
 */

import { spawn } from "node:child_process";
import { z } from "zod";
import { containmentArguments, type WorkerContainment, workerEnvironment } from "./worker-containment.ts";

const probeSchema = z.object({
  driver: z.string(),
  cudaVersion: z.int().nonnegative(),
  devices: z.array(
    z.object({
      ordinal: z.int().nonnegative(),
      uuid: z.string().min(1),
      name: z.string(),
      memoryBytes: z.int().nonnegative(),
      pciBusId: z.string(),
      computeCapability: z.string(),
      multiprocessors: z.int().nonnegative(),
      kind: z.enum(["nvidia", "softgpu"]),
      nvlinks: z.int().nonnegative().default(0),
    }),
  ),
  nvlinks: z.array(z.tuple([z.string(), z.string()])),
});

/** The devices of one driver library on this host. */
export type Probe = z.infer<typeof probeSchema>;

const costsSchema = z.object({
  costs: z.array(
    z.object({
      uuid: z.string().min(1),
      contextBytes: z.int().nonnegative(),
      printsBytes: z.int().nonnegative(),
      allocatesBytes: z.int().nonnegative(),
    }),
  ),
});

/** Memory that a driver takes of a device, in bytes, as measured on this host. */
export type DriverCosts = Omit<z.infer<typeof costsSchema>["costs"][number], "uuid">;

export interface DriverQuestion {
  readonly worker: string;
  readonly driver: string;
  readonly timeoutMs: number;
  /** Default: contained, as the caller's user. */
  readonly containment?: WorkerContainment;
}

/**
 * Lists the devices of a driver library. Rejects with an Error whose message is the worker's own line, or the reason
 * why it could not be started.
 */
export async function probeDriver(question: DriverQuestion): Promise<Probe> {
  const output = await ask(question, "--probe");
  try {
    return probeSchema.parse(JSON.parse(output));
  } catch (cause) {
    throw new Error(`the worker's probe printed something other than its devices`, { cause });
  }
}

/**
 * Measures the memory that a driver library takes of its devices, by UUID; devices that cannot be measured are left
 * out. Rejects like `probeDriver`.
 */
export async function measureDriver(question: DriverQuestion): Promise<ReadonlyMap<string, DriverCosts>> {
  const output = await ask(question, "--costs");
  try {
    const { costs } = costsSchema.parse(JSON.parse(output));
    return new Map(costs.map(({ uuid, ...rest }) => [uuid, rest]));
  } catch (cause) {
    throw new Error(`the worker's probe printed something other than costs`, { cause });
  }
}

/** Without the variables of `millpond sanitize`, which applies only to kernels of programs. */
function questionEnvironment({ containment }: DriverQuestion): NodeJS.ProcessEnv {
  const {
    MILLPOND_SOFTGPU_SANITIZE: _checks,
    MILLPOND_SOFTGPU_FINDINGS: _findings,
    ...env
  } = workerEnvironment(process.env, undefined, containment?.user);
  return env;
}

function ask(question: DriverQuestion, flag: "--probe" | "--costs"): Promise<string> {
  const maxOutputBytes = 1024 * 1024;
  return new Promise((resolve, reject) => {
    const contained = containmentArguments(question.containment);
    const child = spawn(question.worker, ["--driver", question.driver, flag, ...contained], {
      stdio: ["ignore", "pipe", "pipe"],
      env: questionEnvironment(question),
    });
    let output = "";
    let complaint = "";
    let isTimedOut = false;
    const timer = setTimeout(() => {
      isTimedOut = true;
      child.kill("SIGKILL");
    }, question.timeoutMs);
    child.stdout.setEncoding("utf8").on("data", (text: string) => {
      output += text;
      if (output.length > maxOutputBytes) child.kill("SIGKILL");
    });
    child.stderr.setEncoding("utf8").on("data", (text: string) => {
      complaint = (complaint + text).slice(-4096);
    });
    child.on("error", (cause) => {
      clearTimeout(timer);
      reject(new Error(`cannot start the worker program ${question.worker}: ${cause.message}`, { cause }));
    });
    child.on("close", (code, signal) => {
      clearTimeout(timer);
      if (isTimedOut) {
        reject(
          new Error(`the driver ${question.driver} did not answer within ${question.timeoutMs / 1000} s`),
        );
      } else if (code !== 0) {
        const said = complaint.trim();
        reject(new Error(said === "" ? `the probe ended with ${signal ?? `status ${code}`}` : said));
      } else {
        resolve(output);
      }
    });
  });
}
