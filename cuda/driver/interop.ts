// SPDX-License-Identifier: Apache-2.0
/**
 * Graphics interoperability, which shares objects of a graphics API in this process. The GPU's host does not have these
 * objects.
 */
import type { Group, Local, Refused } from "../schema.ts";

const names = [
  "cuEGLStreamConsumerAcquireFrame",
  "cuEGLStreamConsumerConnect",
  "cuEGLStreamConsumerConnectWithFlags",
  "cuEGLStreamConsumerDisconnect",
  "cuEGLStreamConsumerReleaseFrame",
  "cuEGLStreamProducerConnect",
  "cuEGLStreamProducerDisconnect",
  "cuEGLStreamProducerPresentFrame",
  "cuEGLStreamProducerReturnFrame",
  "cuEventCreateFromEGLSync",
  "cuGLCtxCreate",
  "cuGLCtxCreate_v2",
  "cuGLGetDevices",
  "cuGLGetDevices_v2",
  "cuGLInit",
  "cuGLMapBufferObject",
  "cuGLMapBufferObjectAsync",
  "cuGLMapBufferObjectAsync_v2",
  "cuGLMapBufferObject_v2",
  "cuGLRegisterBufferObject",
  "cuGLSetBufferObjectMapFlags",
  "cuGLUnmapBufferObject",
  "cuGLUnmapBufferObjectAsync",
  "cuGLUnregisterBufferObject",
  "cuGraphicsEGLRegisterImage",
  "cuGraphicsGLRegisterBuffer",
  "cuGraphicsGLRegisterImage",
  "cuGraphicsResourceGetMappedEglFrame",
  "cuGraphicsResourceGetMappedPointer",
  "cuGraphicsVDPAURegisterOutputSurface",
  "cuGraphicsVDPAURegisterVideoSurface",
  "cuVDPAUCtxCreate",
  "cuVDPAUCtxCreate_v2",
  "cuVDPAUGetDevice",
] as const;

const refused: Refused = { style: "refused", why: "graphics interoperability needs the GPU in this machine" };

/** Calls about registered objects. */
const ofResources = [
  "cuGraphicsMapResources",
  "cuGraphicsResourceGetMappedMipmappedArray",
  "cuGraphicsResourceGetMappedPointer_v2",
  "cuGraphicsResourceSetMapFlags_v2",
  "cuGraphicsSubResourceGetMappedArray",
  "cuGraphicsUnmapResources",
  "cuGraphicsUnregisterResource",
] as const;
const noResource: Local = { style: "local", how: "nothing can be registered, so every resource is unknown" };

/** Memory and semaphores of other APIs. */
const external = ["cuImportExternalMemory", "cuImportExternalSemaphore"] as const;
/** Calls about imported objects. */
const ofImports = [
  "cuDestroyExternalMemory",
  "cuDestroyExternalSemaphore",
  "cuExternalMemoryGetMappedBuffer",
  "cuExternalMemoryGetMappedMipmappedArray",
  "cuSignalExternalSemaphoresAsync",
  "cuWaitExternalSemaphoresAsync",
] as const;
const noImport: Local = { style: "local", how: "nothing can be imported, so every object is unknown" };
const ofOtherApis: Refused = {
  style: "refused",
  why: "memory of other APIs is on this machine, not on the GPU's host",
};

const multicast = [
  "cuMulticastAddDevice",
  "cuMulticastBindAddr",
  "cuMulticastBindMem",
  "cuMulticastCreate",
  "cuMulticastGetGranularity",
  "cuMulticastUnbind",
] as const;
const ofFabric: Refused = {
  style: "refused",
  why: "it binds whole devices of one NVLink fabric; a vGPU is a part of a device",
};

export const interop: Group = Object.fromEntries([
  ...names.map((name) => [name, refused]),
  ...external.map((name) => [name, ofOtherApis]),
  ...ofResources.map((name) => [name, noResource]),
  ["cuGraphicsResourceSetMapFlags", { style: "same", as: "cuGraphicsResourceSetMapFlags_v2" }],
  ...ofImports.map((name) => [name, noImport]),
  ...multicast.map((name) => [name, ofFabric]),
]);
