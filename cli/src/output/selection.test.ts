// SPDX-License-Identifier: Apache-2.0

import {
  auditKind,
  claimKind,
  deviceKind,
  eventKind,
  type Kind,
  loginKind,
  nodeKind,
  queueKind,
  sessionKind,
  tenantKind,
  tokenKind,
} from "./kinds.ts";
import { expect, test } from "vitest";
import { parseConditions, parseOrder, parseSelector, requireMember } from "./selection.ts";

const first = {
  name: "a",
  state: "bound",
  priority: 5,
  memoryBytes: 2 ** 30,
  models: ["H100", "H200"],
  allocation: { node: "node-a" },
  labels: { zone: "b", rack: "1" },
  endedAt: null,
};
const second = { ...first, name: "b", state: "pending", priority: 10, allocation: null, labels: {} };

test.for([
  ["state=bound", ["a"]],
  ["state==bound", ["a"]],
  ["state!=bound", ["b"]],
  ["priority>=10", ["b"]],
  ["priority<10", ["a"]],
  ["priority>5,state=pending", ["b"]],
  ["priority>5,state=bound", []],
  ["memoryBytes<=1Gi", ["a", "b"]],
  ["memoryBytes>1Gi", []],
  ["models=H200", ["a", "b"]],
  ["models=L4", []],
  ["allocation.node=node-a", ["a"]],
  ["allocation.node!=node-a", ["b"]],
  ["endedAt=", ["a", "b"]],
  ["endedAt>2026-01-01T00:00:00Z", []],
] as const)("condition %s selects by members", ([text, names]) => {
  const conditions = parseConditions(text);
  const selected = [first, second].filter((each) => conditions.every((condition) => condition.test(each)));
  expect(selected.map(({ name }) => name)).toEqual(names);
});

test.for([
  ["zone=b", ["a"]],
  ["zone!=b", ["b"]],
  ["zone", ["a"]],
  ["!zone", ["b"]],
  ["zone=b,rack=2", []],
  ["zone=b, rack=1", ["a"]],
  ["toString", []],
] as const)("selector %s selects by labels", ([text, names]) => {
  const matches = parseSelector(text);
  expect([first, second].filter(matches).map(({ name }) => name)).toEqual(names);
});

test("an order is by number or by text, in either direction", () => {
  const names = (text: string) => [first, second].toSorted(parseOrder(text).compare).map(({ name }) => name);
  expect(names("priority")).toEqual(["a", "b"]);
  expect(names("-priority")).toEqual(["b", "a"]);
  expect(names("-name")).toEqual(["b", "a"]);
  expect(names("memoryBytes")).toEqual(["a", "b"]);
});

test("what cannot be read, and a member that nothing has, are refused", () => {
  for (const text of ["state", "=x", "", "a b=c"]) {
    expect(() => parseConditions(text), text).toThrow("[MILLPOND_E_INVALID]");
  }
  expect(() => parseConditions("priority>many")[0]?.test(first)).toThrow("[MILLPOND_E_INVALID]");
  for (const text of ["", "!a=b", "a=b=c", "a>b"]) {
    expect(() => parseSelector(text), text).toThrow("[MILLPOND_E_INVALID]");
  }
  expect(() => parseOrder("--x")).toThrow("[MILLPOND_E_INVALID]");
  expect(() => requireMember(first, "stat", "--where")).toThrow(
    /--where: there is no member "stat"; there are name, state/,
  );
  // Columns of the tables have other names than members.
  const claim = { name: "a", createdAt: "", openSessions: 1, allocation: null };
  for (const [column, member] of [
    ["age", "createdAt"],
    ["SESSIONS", "openSessions"],
    ["node", "allocation.node"],
  ] as const) {
    expect(() => requireMember(claim, column, "--sort-by")).toThrow(
      `The member of that column is ${member}.`,
    );
  }
  expect(() => requireMember(claim, "status", "--where")).not.toThrow("of that column");
  requireMember(first, "labels.unknown", "--where");
});

function membersOf<T>({ title, toJson, blank }: Kind<T>): readonly [string, object] {
  return [title, toJson(blank())];
}

test.each([
  membersOf(auditKind),
  membersOf(claimKind),
  membersOf(deviceKind),
  membersOf(eventKind),
  membersOf(loginKind),
  membersOf(nodeKind),
  membersOf(queueKind),
  membersOf(sessionKind),
  membersOf(tenantKind),
  membersOf(tokenKind),
])("the members of a %s are known without any", (_, members) => {
  expect(() => requireMember(members, "foo", "--where")).toThrow(/there is no member "foo"; there are \w+, /);
  const [member = ""] = Object.keys(members);
  requireMember(members, member, "--where");
});
