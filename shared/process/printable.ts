/**
 * Text that somebody else wrote (a tenant, a node, who named a process or an interface), made fit to be printed. Every border where text
 * leaves Weir uses it: conditions, Events, logs, the CLI, answers of the sockets.
 */

/**
 * What does something to a terminal or to its reader instead of being seen: controls (C0, DEL, C1), characters that turn the direction of
 * text or have no width, separators of lines, tags, halves of a character (Unicode categories Cc, Cf, Zl, Zp, Cs, property
 * Default_Ignorable_Code_Point).
 */
const UNSEEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}\p{DI}]/gu;
const UNSEEN_IN_LINES = /(?!\n)[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}\p{DI}]/gu;

/** One line: what cannot be seen stands there as an escape of JSON (`\n`, `\u202e`). Text without any is returned as it is. */
export function printable(text: string): string {
  return text.replace(UNSEEN, escaped);
}

/** The same of text whose lines are ours. JSON stays the JSON that it was. */
export function printableLines(text: string): string {
  return text.replace(UNSEEN_IN_LINES, escaped);
}

/** `printable`, and no longer than `most` characters: longer text ends in `…`. */
export function clipped(text: string, most: number): string {
  // Twice: an escape is longer than what it stands for, and a megabyte need not be escaped to be cut.
  return cut(printable(cut(text, most)), most);
}

/** A line to be written. */
export function line(text: string): string {
  return `${printable(text)}\n`;
}

function cut(text: string, most: number): string {
  return text.length <= most ? text : `${text.slice(0, most - 1)}…`;
}

function escaped(character: string): string {
  const json = JSON.stringify(character).slice(1, -1);
  if (json !== character) return json;
  return Array.from({ length: character.length }, (_, at) => unit(character.charCodeAt(at))).join('');
}

function unit(code: number): string {
  return `\\u${code.toString(16).padStart(4, '0')}`;
}
