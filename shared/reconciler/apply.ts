/** Carries out items on the target, one by one or in batches, and tells the outcome of each. */

import type { Item } from './book.ts';
import { Slice } from './clock.ts';
import { LateFailureError, toError } from './errors.ts';
import type { Operations } from './types.ts';

export interface Outcome<T> {
  succeeded(item: Item<T>): void;
  failed(item: Item<T>, error: Error): void;
}

export interface ApplyOptions<T> {
  readonly name: string;
  readonly operations: Operations<T>;
  readonly concurrency: number;
  readonly outcome: Outcome<T>;
  /** Asked before each operation begins: true leaves the rest unattempted. */
  readonly stopped: () => boolean;
}

type Batch<T> = NonNullable<Operations<T>['updateBatch']>;

/**
 * Attempts the items in their order; where batch forms exist, deletes come before updates, so that what one row gives up
 * is free when another takes it. Returns those left unattempted because of a stop.
 */
export async function apply<T>(items: readonly Item<T>[], options: ApplyOptions<T>): Promise<readonly Item<T>[]> {
  const { operations } = options;
  const updateBatch = operations.updateBatch?.bind(operations);
  const deleteBatch = operations.deleteBatch?.bind(operations);
  if (updateBatch === undefined && deleteBatch === undefined) return each(items, options);
  const deletes = items.filter((item) => item.deleted);
  const updates = items.filter((item) => !item.deleted);
  const left = await group(deletes, deleteBatch, options);
  return [...left, ...(await group(updates, updateBatch, options))];
}

async function group<T>(
  items: readonly Item<T>[],
  batch: Batch<T> | undefined,
  options: ApplyOptions<T>,
): Promise<readonly Item<T>[]> {
  if (items.length === 0) return [];
  if (batch === undefined) return each(items, options);
  if (options.stopped()) return items;
  const failures = new Map<Item<T>, Error>();
  let open = true;
  const given = items.map((item) => ({
    row: item.row,
    revision: item.revision,
    fail(error: unknown): void {
      if (!open) throw new LateFailureError(options.name);
      failures.set(item, toError(error));
    },
  }));
  try {
    await batch(given);
  } catch (error) {
    for (const item of items) if (!failures.has(item)) failures.set(item, toError(error));
  }
  open = false;
  const slice = new Slice();
  for (const item of items) {
    const error = failures.get(item);
    if (error === undefined) options.outcome.succeeded(item);
    else options.outcome.failed(item, error);
    const pause = slice.pause();
    if (pause !== undefined) await pause;
  }
  return [];
}

async function each<T>(items: readonly Item<T>[], options: ApplyOptions<T>): Promise<readonly Item<T>[]> {
  const { operations, outcome, stopped } = options;
  let next = 0;
  const worker = async (): Promise<void> => {
    const slice = new Slice();
    while (next < items.length && !stopped()) {
      const item = items[next++] as Item<T>;
      try {
        const running = item.deleted
          ? operations.delete(item.row, item.revision)
          : operations.update(item.row, item.revision);
        if (running !== undefined) await running;
        outcome.succeeded(item);
      } catch (error) {
        outcome.failed(item, toError(error));
      }
      const pause = slice.pause();
      if (pause !== undefined) await pause;
    }
  };
  await Promise.all(Array.from({ length: Math.min(options.concurrency, items.length) }, worker));
  return items.slice(next);
}
