// SPDX-License-Identifier: Apache-2.0
import { commands, driver, loadAbi, structs } from "@millpond/cuda";
import { expect, test } from "vitest";
import { callText } from "./emit-client.ts";
import { makePlan } from "./plan/planner.ts";

test("a precondition is checked with all arguments, before anything is sent", () => {
  const plan = makePlan({ abi: loadAbi(), driver, commands, structs });
  const call = plan.calls.find(({ entry }) => entry.stem === "cuMemsetD16_v2");
  if (call === undefined) throw new Error("cuMemsetD16_v2 is not remoted");
  const text = callText(call, plan);
  const precondition = text.indexOf("precondition::memset(call, dstDevice, us, N)");
  expect(precondition).toBeGreaterThan(0);
  expect(text.indexOf("call.post(")).toBeGreaterThan(precondition);
});

test("the effect of a command comes after it, if it could be sent", () => {
  const plan = makePlan({ abi: loadAbi(), driver, commands, structs });
  const call = plan.calls.find(({ entry }) => entry.stem === "cuStreamBatchMemOp_v2");
  if (call === undefined) throw new Error("cuStreamBatchMemOp_v2 is not remoted");
  const text = callText(call, plan);
  const told = text.search(
    /if \(result == CUDA_SUCCESS\) effect::batchesWords\(call, wire, std::as_bytes\(std::span\(paramArray/,
  );
  expect(told).toBeGreaterThan(0);
  expect(told).toBeGreaterThan(text.indexOf("call.post("));
});

test("null is refused before a handle is looked up, where a driver has an error of its own for it", () => {
  const plan = makePlan({ abi: loadAbi(), driver, commands, structs });
  const call = plan.calls.find(({ entry }) => entry.stem === "cuArrayGetSparseProperties");
  if (call === undefined) throw new Error("cuArrayGetSparseProperties is not remoted");
  const text = callText(call, plan);
  const refusal = text.indexOf("if (array == nullptr) return CUDA_ERROR_INVALID_VALUE;");
  expect(refusal).toBeGreaterThan(0);
  expect(text.indexOf("call.handle(")).toBeGreaterThan(refusal);
});
