// SPDX-License-Identifier: Apache-2.0
/**
 * The contents of the tails of the commands of `commands/`: whether they may contain addresses of memory that the worker or a
 * kernel uses. The client makes such memory accessible to the worker before it sends the command. Every tail has an entry.
 */

/**
 * - `plain`: no addresses, or none that are dereferenced before the program passes them to a device.
 * - `words`: an address may be at any offset.
 * - `node`: a graph::NodeRecord and the data after it, which identifies its own addresses.
 */
export type TailMeaning = "plain" | "words" | "node";

/** Command → tail → its content. */
export const tails: Readonly<Record<string, Readonly<Record<string, TailMeaning>>>> = {
  ArrayMap: { entries: "plain" },
  AtomicCapabilities: { operations: "plain" },
  CaptureBegin: { nodes: "plain", edges: "plain" },
  CaptureDepend: { nodes: "plain", edges: "plain" },
  ClusterOccupancy: { attributes: "words" },
  ContextCreate: { affinity: "plain" },
  CopyToDevice: { data: "plain" },
  GetFunction: { name: "plain" },
  GetGlobal: { name: "plain" },
  GetReference: { name: "plain" },
  GraphAddNode: { nodes: "plain", edges: "plain", params: "node" },
  GraphDepend: { from: "plain", to: "plain", edges: "plain" },
  GraphSetNode: { params: "node" },
  GraphSource: { data: "plain" },
  GraphUpdateNode: { params: "node" },
  HostContents: { data: "plain" },
  ImagePart: { data: "plain" },
  Launch: { attributes: "words", params: "words" },
  LinkAdd: { name: "plain", options: "plain" },
  LinkCreate: { options: "plain" },
  ModuleLoad: { options: "plain", places: "plain" },
  ResourceDescribe: { resources: "plain" },
  VmSetAccess: { access: "plain" },
};
