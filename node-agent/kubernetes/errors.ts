import { clipped } from '@weir/process/printable';

/**
 * An object of the API does not have the shape that it must have; the agent ignores it.
 * @fix Run operator and agents of one release; see who else writes this object.
 */
export class ObjectShapeError extends Error {
  readonly code = 'ERR_WEIR_OBJECT_SHAPE';
  constructor(path: string, expected: string, value: unknown) {
    super(
      `${path} is ${clipped(JSON.stringify(value) ?? 'absent', 80)}, not ${expected}; was it written by a Weir operator of the same release?`,
    );
    this.name = 'ObjectShapeError';
  }
}
