// SPDX-License-Identifier: Apache-2.0
/**
 * Structs of the API that a client sends to its worker: the meaning of each 64-bit member that C declares as neither a size
 * nor a number of bytes. The worker's driver gets no such member unchanged: an `address` passes worker::AddressGate, a
 * `handle` the tables of the session, `unset` ones are null.
 */

/** The meaning of a member. An `opaque` one is created by the driver and passed only to the device. */
export type MemberMeaning = "address" | "echo" | "handle" | "number" | "unset" | "opaque";

/** Struct → path of the member as in `offsetof` → its meaning. Members of a union each have their own meaning. */
export const structs: Readonly<Record<string, Readonly<Record<string, MemberMeaning>>>> = {
  CUDA_MEMCPY3D: {
    srcHost: "address",
    srcDevice: "address",
    srcArray: "handle",
    reserved0: "unset",
    dstHost: "address",
    dstDevice: "address",
    dstArray: "handle",
    reserved1: "unset",
  },
  CUDA_MEMSET_NODE_PARAMS: { dst: "address" },
  CUDA_ARRAY_DESCRIPTOR: {},
  CUDA_RESOURCE_DESC: {
    "res.array.hArray": "handle",
    "res.mipmap.hMipmappedArray": "handle",
    "res.linear.devPtr": "address",
    "res.pitch2D.devPtr": "address",
  },
  CUDA_TEXTURE_DESC: {},
  CUDA_RESOURCE_VIEW_DESC: {},
  CUstreamBatchMemOpParams: {
    "waitValue.address": "address",
    "waitValue.value64": "number",
    "waitValue.alias": "unset",
    "writeValue.address": "address",
    "writeValue.value64": "number",
    "writeValue.alias": "unset",
    pad: "number",
  },
  CUlaunchAttributeValue: {
    "accessPolicyWindow.base_ptr": "address",
    "programmaticEvent.event": "handle",
    "launchCompletionEvent.event": "handle",
    "deviceUpdatableKernelNode.devNode": "echo",
  },
  CUmemPoolProps: { win32SecurityAttributes: "unset" },
  CUarrayMapInfo: {
    "resource.mipmap": "handle",
    "resource.array": "handle",
    "subresource.miptail.offset": "number",
    "subresource.miptail.size": "number",
    "memHandle.memHandle": "handle",
    offset: "number",
  },
  CUtensorMap: { opaque: "opaque" },
};
