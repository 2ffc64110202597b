// SPDX-License-Identifier: Apache-2.0

// The numbers on which scores depend: the free capacity of a node, and the request of a claim.

/** A whole GPU, in thousandths. */
export const wholeMilli = 1000;

/** A model mask that matches every model. */
export const anyModel = -1;

/** The most models that a mask can distinguish. */
export const maxModels = 31;

/** The request of a claim to one node. */
export interface Shape {
  readonly cpuMilli: number;
  readonly memoryMiB: number;
  /** 0: none. */
  readonly gpus: number;
  /** Thousandths of each GPU, 1 to 1000; 0 without GPUs. */
  readonly gpuMilli: number;
  /** Bit i: model i is acceptable. */
  readonly models: number;
}

/** Free capacity of a node. Changed in place, only by `take` and `give`. */
export interface FreeCapacity {
  /** Index of the model of its GPUs; -1: it has none. */
  readonly model: number;
  /** Infinity if CPU is unknown or not requested. */
  cpuMilli: number;
  memoryMiB: number;
  /** Free capacity of each GPU, 0 to 1000. */
  readonly freeMilli: Int32Array;
  /** The sum of `freeMilli`. */
  idleMilli: number;
  /** How many GPUs are wholly free. */
  wholeGpus: number;
}

export function freeCapacityOf(
  cpuMilli: number,
  memoryMiB: number,
  model: number,
  freeMilli: ArrayLike<number>,
): FreeCapacity {
  const free = Int32Array.from(freeMilli);
  return {
    model,
    cpuMilli,
    memoryMiB,
    freeMilli: free,
    idleMilli: free.reduce((sum, each) => sum + each, 0),
    wholeGpus: free.reduce((count, each) => count + (each === wholeMilli ? 1 : 0), 0),
  };
}

export function matchesModel(models: number, model: number): boolean {
  return models === anyModel || (model >= 0 && ((models >>> model) & 1) === 1);
}

export function fitsCapacity(room: FreeCapacity, shape: Shape): boolean {
  if (room.cpuMilli < shape.cpuMilli || room.memoryMiB < shape.memoryMiB) {
    return false;
  }
  const { gpus, gpuMilli } = shape;
  if (gpus === 0) {
    return true;
  }
  if (!matchesModel(shape.models, room.model)) {
    return false;
  }
  if (gpuMilli === wholeMilli) {
    return room.wholeGpus >= gpus;
  }
  let count = 0;
  const { freeMilli } = room;
  for (let gpu = 0; gpu < freeMilli.length; gpu++) {
    if ((freeMilli[gpu] as number) >= gpuMilli && ++count === gpus) {
      return true;
    }
  }
  return false;
}

/**
 * The GPUs of the room that the shape gets: wholly free ones by lowest index; for shares of several GPUs those with the least
 * left over. `preferred` is the GPU for a share of one GPU.
 */
export function gpusFor(room: FreeCapacity, shape: Shape, preferred: number): readonly number[] {
  const { gpus, gpuMilli } = shape;
  if (gpus === 0) {
    return [];
  }
  if (gpus === 1 && gpuMilli < wholeMilli) {
    return [preferred];
  }
  const fitting: number[] = [];
  room.freeMilli.forEach((free, gpu) => {
    if (free >= gpuMilli) {
      fitting.push(gpu);
    }
  });
  const freeOf = (gpu: number): number => room.freeMilli[gpu] ?? 0;
  return fitting.sort((a, b) => freeOf(a) - freeOf(b) || a - b).slice(0, gpus);
}

/** Takes the shape out of the room. Precondition: it fits. */
export function take(room: FreeCapacity, shape: Shape, gpus: readonly number[]): void {
  change(room, shape, gpus, 1);
}

/** Undoes `take`. */
export function give(room: FreeCapacity, shape: Shape, gpus: readonly number[]): void {
  change(room, shape, gpus, -1);
}

function change(room: FreeCapacity, shape: Shape, gpus: readonly number[], sign: 1 | -1): void {
  const { freeMilli } = room;
  room.cpuMilli -= sign * shape.cpuMilli;
  room.memoryMiB -= sign * shape.memoryMiB;
  for (const gpu of gpus) {
    const before = freeMilli[gpu] as number;
    const after = before - sign * shape.gpuMilli;
    freeMilli[gpu] = after;
    room.idleMilli += after - before;
    room.wholeGpus += (after === wholeMilli ? 1 : 0) - (before === wholeMilli ? 1 : 0);
  }
}
