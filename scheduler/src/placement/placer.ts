// SPDX-License-Identifier: Apache-2.0

import { BestIndex } from "./best-index.ts";
import { fitsCapacity, give, gpusFor, type FreeCapacity, type Shape, take } from "./free-capacity.ts";
import type { Scorer } from "./scorer.ts";
import { shapeKey } from "./workload.ts";

/** Where a shape was placed. */
export interface Decision {
  readonly shape: Shape;
  readonly room: number;
  readonly gpus: readonly number[];
}

/**
 * The scores of one shape, with the state of each room for which they were computed, so that only changed rooms are rescored.
 */
interface ScoreCache {
  readonly best: BestIndex;
  /** Version of each room for which its score was computed. */
  readonly versions: Int32Array;
  /** Position in the list of changes up to which the scores are current. */
  upTo: number;
}

/** Length of the list of changes for each room; the oldest are dropped. */
const changesPerRoom = 4;

/** Upper bound on the memory for scores; each shape takes 24 bytes for each room. */
const mostScoreBytes = 1 << 29;
const scoreBytesPerRoom = 24;

/**
 * Rooms, and decisions about them in sequence. Finds the best room for a shape without a full scan: only rooms that have
 * changed since the shape was last requested are rescored. The result equals that of a scan of all rooms in order: the first
 * one with the best score.
 */
export class Placer {
  readonly #rooms: readonly FreeCapacity[];
  readonly #scorer: Scorer;
  readonly #versions: Int32Array;
  readonly #values: Float64Array;
  readonly #caches = new Map<string, ScoreCache>();
  readonly #mostCaches: number;
  #cachesByIdentity = new WeakMap<Shape, ScoreCache>();
  /** Rooms in the order in which they changed. */
  #changes: Int32Array;
  #changeCount = 0;
  readonly #log: Decision[] = [];
  readonly #untouched: readonly string[];

  /**
   * @param rooms owned by the placer, the only one to change them from now on
   * @param mostShapes upper bound on the shapes whose scores are cached. Default: as many as fit into half a gigabyte
   */
  constructor(rooms: readonly FreeCapacity[], scorer: Scorer, mostShapes?: number) {
    this.#rooms = rooms;
    this.#scorer = scorer;
    this.#mostCaches =
      mostShapes ?? Math.max(2, Math.floor(mostScoreBytes / (scoreBytesPerRoom * (1 + rooms.length))));
    this.#versions = new Int32Array(rooms.length).fill(1);
    this.#values = Float64Array.from(rooms, (room) => scorer.valueOf(room));
    this.#changes = new Int32Array(Math.max(1024, rooms.length * changesPerRoom));
    this.#untouched = rooms.map(
      (room) => `${room.model} ${room.cpuMilli} ${room.memoryMiB} ${room.freeMilli.join(" ")}`,
    );
  }

  /** Places the shape where its score is best. Undefined: it fits nowhere, and nothing has changed. */
  place(shape: Shape): Decision | undefined {
    const best = this.#cacheOf(shape).best.best();
    const room = this.#rooms[best];
    if (room === undefined) {
      return undefined;
    }
    // Scored again, because the scorer only knows the GPU of its latest score.
    this.#scorer.score(room, shape, this.#values[best] as number);
    const decision: Decision = { shape, room: best, gpus: gpusFor(room, shape, this.#scorer.gpu) };
    this.carryOut(decision);
    return decision;
  }

  /** @throws RangeError when the decision does not fit the current rooms */
  carryOut(decision: Decision): void {
    const { shape, gpus } = decision;
    const room = this.#rooms[decision.room];
    const distinct = new Set(gpus).size === shape.gpus && gpus.length === shape.gpus;
    const free = gpus.every((gpu) => (room?.freeMilli[gpu] ?? -1) >= shape.gpuMilli);
    if (room === undefined || !distinct || !free || !fitsCapacity(room, shape)) {
      throw new RangeError(`room ${decision.room} has no place for the decision`);
    }
    take(room, shape, gpus);
    this.#touch(decision.room, room);
    this.#log.push(decision);
  }

  /** How many decisions have been carried out and not rolled back. */
  get mark(): number {
    return this.#log.length;
  }

  /** The decisions since a mark, so that they can be carried out elsewhere. */
  since(mark: number): readonly Decision[] {
    return this.#log.slice(mark);
  }

  /** Rolls back all decisions since the mark, newest first. */
  rollBack(mark: number): void {
    while (this.#log.length > mark) {
      const decision = this.#log.pop();
      const room = decision === undefined ? undefined : this.#rooms[decision.room];
      if (decision !== undefined && room !== undefined) {
        give(room, decision.shape, decision.gpus);
        this.#touch(decision.room, room);
      }
    }
  }

  /**
   * Releases the allocation of an ended claim. Neither this nor any earlier decision can be rolled back
   * afterwards.
   */
  release(decision: Decision): void {
    const position = this.#log.indexOf(decision);
    const room = this.#rooms[decision.room];
    if (position < 0 || room === undefined) {
      throw new RangeError("the decision has not been carried out here");
    }
    this.#log.splice(position, 1);
    give(room, decision.shape, decision.gpus);
    this.#touch(decision.room, room);
  }

  #touch(index: number, room: FreeCapacity): void {
    (this.#versions[index] as number) += 1;
    this.#values[index] = this.#scorer.valueOf(room);
    if (this.#changeCount === this.#changes.length) {
      this.#forgetChanges();
    }
    this.#changes[this.#changeCount++] = index;
  }

  /** Drops the oldest changes. Shapes that were last requested before them are scored for all rooms the next time. */
  #forgetChanges(): void {
    const half = this.#changes.length >> 1;
    this.#changes.copyWithin(0, half);
    this.#changeCount -= half;
    for (const cache of this.#caches.values()) {
      cache.upTo -= half;
    }
  }

  #cacheOf(shape: Shape): ScoreCache {
    let cache = this.#cachesByIdentity.get(shape);
    if (cache === undefined) {
      const key = shapeKey(shape);
      cache = this.#caches.get(key);
      if (cache === undefined) {
        this.#makeSpace();
        cache = this.#newCache(shape);
        this.#caches.set(key, cache);
      }
      this.#cachesByIdentity.set(shape, cache);
    }
    this.#update(cache, shape);
    return cache;
  }

  /** Evicts the least recently used half when there are too many shapes. */
  #makeSpace(): void {
    if (this.#caches.size < this.#mostCaches) {
      return;
    }
    const oldestFirst = [...this.#caches].sort(([, a], [, b]) => a.upTo - b.upTo);
    for (const [key] of oldestFirst.slice(0, Math.ceil(oldestFirst.length / 2))) {
      this.#caches.delete(key);
    }
    this.#cachesByIdentity = new WeakMap();
  }

  #newCache(shape: Shape): ScoreCache {
    const best = new BestIndex(this.#rooms.length);
    // Untouched rooms are of few kinds, and each kind is scored once.
    const untouched = new Map<string, number>();
    this.#rooms.forEach((_, index) => {
      if (this.#versions[index] !== 1) {
        best.setQuietly(index, this.#scoreOf(index, shape));
        return;
      }
      const kind = this.#untouched[index] as string;
      const score = untouched.get(kind) ?? this.#scoreOf(index, shape);
      untouched.set(kind, score);
      best.setQuietly(index, score);
    });
    best.rebuild();
    return { best, versions: this.#versions.slice(), upTo: this.#changeCount };
  }

  #update(cache: ScoreCache, shape: Shape): void {
    const { versions } = cache;
    if (cache.upTo < 0) {
      for (let index = 0; index < versions.length; index++) {
        this.#refresh(cache, index, shape);
      }
    } else {
      for (let position = cache.upTo; position < this.#changeCount; position++) {
        this.#refresh(cache, this.#changes[position] as number, shape);
      }
    }
    cache.upTo = this.#changeCount;
  }

  #refresh(cache: ScoreCache, index: number, shape: Shape): void {
    if (cache.versions[index] !== this.#versions[index]) {
      cache.versions[index] = this.#versions[index] as number;
      cache.best.set(index, this.#scoreOf(index, shape));
    }
  }

  #scoreOf(index: number, shape: Shape): number {
    const room = this.#rooms[index] as FreeCapacity;
    return fitsCapacity(room, shape)
      ? this.#scorer.score(room, shape, this.#values[index] as number)
      : Number.NEGATIVE_INFINITY;
  }
}

/** The best room by a full scan, and its GPUs: the reference for `Placer.place`. */
export function scan(rooms: readonly FreeCapacity[], scorer: Scorer, shape: Shape): Decision | undefined {
  let best: Decision | undefined;
  let bestScore = Number.NEGATIVE_INFINITY;
  rooms.forEach((room, index) => {
    if (fitsCapacity(room, shape)) {
      const score = scorer.score(room, shape, scorer.valueOf(room));
      if (score > bestScore) {
        bestScore = score;
        best = { shape, room: index, gpus: gpusFor(room, shape, scorer.gpu) };
      }
    }
  });
  return best;
}
