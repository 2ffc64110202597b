// SPDX-License-Identifier: Apache-2.0
/**
 * Structs of the API that cross from a client to its worker: what each member of 64 bits means that C calls neither a size
 * nor a number of bytes. The worker's driver is given none of them as it came: those that are an `address` go through
 * worker::AddressGate, those that are a `handle` through the books of the session, `unset` ones are null.
 */

/** What a member means; `opaque` is made by the driver, and given to the device alone. */
export type MemberMeaning = "address" | "echo" | "handle" | "number" | "unset" | "opaque";

/** Struct → path of the member as `offsetof` takes it → what it means. Members that lie in one place mean each what they say. */
export const structs: Readonly<Record<string, Readonly<Record<string, MemberMeaning>>>> = {
  CUDA_MEMCPY3D: {
    srcHost: "address",
    srcDevice: "address",
    srcArray: "unset",
    reserved0: "unset",
    dstHost: "address",
    dstDevice: "address",
    dstArray: "unset",
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
