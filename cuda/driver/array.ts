// SPDX-License-Identifier: Apache-2.0
/** Arrays, and the texture and surface objects over them. */
import type { Group } from "../schema.ts";

const local = { style: "local" } as const;
const allocation = {
  style: "hand",
  why: "counts against the memory limit; the client keeps the descriptors",
} as const;
const object = {
  style: "hand",
  why: "the object is the driver's, because kernels receive it; the client keeps the descriptors",
} as const;
const sparseProperties = { kind: "out" } as const;
export const arrays: Group = {
  cuArrayCreate_v2: allocation,
  cuArray3DCreate_v2: allocation,
  cuArrayDestroy: allocation,
  cuArrayGetDescriptor_v2: local,
  cuArray3DGetDescriptor_v2: local,
  cuArrayGetMemoryRequirements: { style: "hand", why: "takes a handle that the client assigned" },
  cuArrayGetPlane: allocation,
  cuArrayGetSparseProperties: {
    style: "wait",
    left: "trace",
    context: "none",
    arguments: { sparseProperties, array: { kind: "handle", of: "array", null: "invalidValue" } },
  },
  cuMipmappedArrayCreate: allocation,
  cuMipmappedArrayDestroy: allocation,
  cuMipmappedArrayGetLevel: allocation,
  cuMipmappedArrayGetMemoryRequirements: {
    style: "hand",
    why: "takes a handle that the client assigned",
  },
  cuMipmappedArrayGetSparseProperties: {
    style: "wait",
    left: "trace",
    context: "none",
    arguments: { sparseProperties, mipmap: { kind: "handle", of: "mipmappedArray", null: "invalidValue" } },
  },
  cuTexObjectCreate: object,
  cuTexObjectDestroy: object,
  cuTexObjectGetResourceDesc: local,
  cuTexObjectGetTextureDesc: local,
  cuTexObjectGetResourceViewDesc: local,
  cuSurfObjectCreate: object,
  cuSurfObjectDestroy: object,
  cuSurfObjectGetResourceDesc: local,
};
