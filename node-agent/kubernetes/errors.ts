import { clipped } from '@weir/process/printable';

/** An object of the API does not have the shape that it must have. */
export class ObjectShapeError extends Error {
  readonly code = 'KUBERNETES_OBJECT';
  constructor(path: string, expected: string, value: unknown) {
    super(
      `${path} is ${clipped(JSON.stringify(value) ?? 'absent', 80)}, not ${expected}; was it written by a Weir operator of the same release?`,
    );
    this.name = 'ObjectShapeError';
  }
}
