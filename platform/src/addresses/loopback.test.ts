// SPDX-License-Identifier: Apache-2.0

import { expect, test } from "vitest";
import { isLoopbackAddress, isLoopbackHost, isLoopbackUrl } from "./loopback.ts";

test("addresses of this machine alone are told from those that others reach", () => {
  for (const address of ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"]) {
    expect(isLoopbackAddress(address), address).toBe(true);
  }
  for (const address of [
    "0.0.0.0",
    "::",
    "10.0.0.127",
    "127.0.0.1.example.org",
    "128.0.0.1",
    "fe80::1",
    "",
  ]) {
    expect(isLoopbackAddress(address), address).toBe(false);
  }
});

test("of names only localhost is, also with brackets and in URLs", () => {
  for (const host of ["localhost", "LOCALHOST.", "[::1]", "::1", "127.0.0.1"]) {
    expect(isLoopbackHost(host), host).toBe(true);
  }
  for (const host of ["localhost.example.org", "notlocalhost", "127.example.org", "[::]", "pool"]) {
    expect(isLoopbackHost(host), host).toBe(false);
  }
  expect(isLoopbackUrl(new URL("http://127.1:7170/path"))).toBe(true);
  expect(isLoopbackUrl(new URL("http://localhost@example.org/"))).toBe(false);
});
