/** Texts in conditions and Events. */
import { clipped } from '@weir/process/printable';

export const LONGEST_MESSAGE = 1024;

/** As a condition or an Event says it: on one line, with nothing in it that is not seen. */
export function oneLine(text: string, longest = LONGEST_MESSAGE): string {
  return clipped(text, longest);
}
