// SPDX-License-Identifier: Apache-2.0

import { existsSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { millpondError } from "@millpond/api";

/** The native parts of Millpond. Absolute paths of files that exist. */
export interface NativeFiles {
  /** The worker program. */
  readonly worker: string;
  /** The library that takes the place of the driver library in a client program. */
  readonly client: string;
  /** The software GPU's driver library. */
  readonly softgpu: string;
}

type Layout = Readonly<Record<keyof NativeFiles, string>>;

/** Paths in a build tree. */
const buildLayout: Layout = {
  worker: "worker/millpond-worker",
  client: "client/libcuda.so.1",
  softgpu: "softgpu/libcuda.so.1",
};

/** Paths in a package. */
const packageLayout: Layout = { ...buildLayout, worker: "millpond-worker" };

/**
 * Finds the native parts: in MILLPOND_NATIVE_DIR, else in build/native/release or native/ beside this program or up to
 * three levels above it, so that sources and bundles find theirs.
 *
 * @throws MILLPOND_E_NOT_INSTALLED naming the missing files, and where they were expected
 */
export function findNativeFiles(environment: NodeJS.ProcessEnv): NativeFiles {
  const chosen = environment["MILLPOND_NATIVE_DIR"];
  const candidates: [string, Layout][] = [];
  if (chosen !== undefined && chosen !== "") {
    candidates.push([resolve(chosen), packageLayout], [resolve(chosen), buildLayout]);
  } else {
    let directory = import.meta.dirname;
    for (let level = 0; level < 4; level += 1) {
      candidates.push(
        [join(directory, "build", "native", "release"), buildLayout],
        [join(directory, "native"), packageLayout],
      );
      directory = dirname(directory);
    }
  }
  const missing: string[] = [];
  for (const [directory, layout] of candidates) {
    const files: NativeFiles = {
      worker: join(directory, layout.worker),
      client: join(directory, layout.client),
      softgpu: join(directory, layout.softgpu),
    };
    const absent = Object.values(files).filter((path) => !existsSync(path));
    if (absent.length === 0) return files;
    // A place that has some of the files is the one to report; the other places are only candidates.
    if (absent.length < 3 || chosen !== undefined) missing.push(...absent);
  }
  const places = [...new Set(candidates.map(([directory]) => directory))].filter(
    (place) => chosen !== undefined || existsSync(dirname(place)),
  );
  throw millpondError(
    "MILLPOND_E_NOT_INSTALLED",
    missing.length > 0
      ? `native parts of Millpond are missing: ${[...new Set(missing)].join(", ")}`
      : `the native parts of Millpond (${Object.values(buildLayout).join(", ")}) are in none of ${places.join(", ")}`,
  );
}
