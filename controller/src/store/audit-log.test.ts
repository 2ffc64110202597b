// SPDX-License-Identifier: Apache-2.0

import { mkdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createClient } from "@connectrpc/connect";
import { AuditChain, type AuditLink, errorCodeOf, QueueService } from "@millpond/api";
import { pino } from "pino";
import { expect, onTestFinished, test } from "vitest";
import { startController } from "../controller.ts";
import { auditEntry } from "../testing/records.ts";
import { makeTestDirectory } from "../testing/test-pool.ts";
import { makeTransport } from "../testing/transport.ts";
import { AuditLog } from "./audit-log.ts";

const silent = pino({ level: "silent" });

function read(path: string): AuditLink[] {
  return readFileSync(path, "utf8")
    .split("\n")
    .filter((line) => line.startsWith("{"))
    .map((line) => JSON.parse(line) as AuditLink);
}

function problemsOf(links: readonly AuditLink[]): string[] {
  const chain = new AuditChain();
  return links.map((link) => chain.add(link)).filter((problem) => problem !== undefined);
}

async function start(directory: string, path: string, isAuditLogRequired: boolean) {
  const controller = await startController({
    stateDirectory: directory,
    listen: "127.0.0.1:0",
    log: silent,
    auditLog: path,
    isAuditLogRequired,
  });
  const queues = createClient(QueueService, makeTransport(controller.url, controller.userToken));
  const put = (name: string) => queues.putTenant({ tenant: { name } }).then(() => "ok", errorCodeOf);
  return { controller, queues, put };
}

test("changes and refusals are in the file with a chain of hashes, which goes on after a restart", async () => {
  const directory = makeTestDirectory();
  const path = join(directory, "audit.jsonl");
  {
    const { controller, put } = await start(directory, path, true);
    expect(await put("team-a")).toBe("ok");
    expect(await put("Not A Name")).toBe("MILLPOND_E_INVALID");
    await controller[Symbol.asyncDispose]();
  }
  const { controller, put } = await start(directory, path, true);
  onTestFinished(() => controller[Symbol.asyncDispose]());
  expect(await put("team-b")).toBe("ok");
  const links = read(path);
  expect(links).toMatchObject([
    { id: 1, who: "file:user", subject: "tenant/team-a", result: "ok" },
    { id: 2, result: "MILLPOND_E_INVALID" },
    { id: 3, subject: "tenant/team-b", result: "ok" },
  ]);
  expect(problemsOf(links)).toEqual([]);
  expect(problemsOf(links.toSpliced(1, 1))).not.toEqual([]);
  expect(statSync(path).mode & 0o777).toBe(0o600);
});

test("where the file is required, no change is made without it; where it is not, changes go on", async () => {
  const directory = makeTestDirectory();
  const folder = join(directory, "logs");
  mkdirSync(folder);
  const path = join(folder, "audit.jsonl");
  for (const isRequired of [true, false]) {
    const { controller, queues, put } = await start(directory, path, isRequired);
    const name = isRequired ? "required" : "optional";
    rmSync(folder, { recursive: true });
    writeFileSync(folder, "no folder");
    controller.reload({ logLevel: "silent" });
    expect(await put(name)).toBe(isRequired ? "MILLPOND_E_AUDIT_LOG" : "ok");
    const { tenants } = await queues.listTenants({});
    expect(tenants.some((tenant) => tenant.name === name)).toBe(!isRequired);
    rmSync(folder);
    mkdirSync(folder);
    expect(await put(`${name}-again`)).toBe("ok");
    expect(read(path).at(-1)).toMatchObject({ subject: `tenant/${name}-again` });
    await controller[Symbol.asyncDispose]();
  }
});

test("a file that was renamed is left, and one that ends in the middle of a line is gone on with", async () => {
  const path = join(makeTestDirectory(), "audit.jsonl");
  await using log = await AuditLog.open({ path, isRequired: true, log: silent });
  await log.write([auditEntry, auditEntry]);
  renameSync(path, `${path}.1`);
  await log.write([auditEntry]);
  expect(read(`${path}.1`)).toHaveLength(3);
  log.reload();
  await log.write([auditEntry]);
  expect(read(path)).toMatchObject([{ id: 4, previousHash: read(`${path}.1`)[2]?.hash }]);
  writeFileSync(path, `${readFileSync(path, "utf8")}{"id":5,"who":"half`, { mode: 0o600 });
  log.reload();
  await log.write([auditEntry]);
  const lines = readFileSync(path, "utf8").split("\n");
  expect(lines.at(1)).toBe('{"id":5,"who":"half');
  expect(JSON.parse(lines.at(2) ?? "")).toMatchObject({ id: 5 });
});
