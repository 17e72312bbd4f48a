import { customAlphabet } from 'nanoid';

const random = customAlphabet('0123456789abcdefghijklmnopqrstuvwxyz', 12);

/**
 * A new random id for what has no number of its own: a process, a request, a follower, a writing of a file. 12 characters, 62 bits from the
 * system's secure random source; digits and lower case alone, so that it may be part of the name of a file or of an API object. Arguments
 * are passed over (nanoid takes a length there), so that it may be given as a callback.
 */
export function newId(): string {
  return random();
}
