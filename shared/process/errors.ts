/** Facts of a caught value, whichever realm its class comes from. */

/** `ENOENT`, `ECONNREFUSED`, ...; undefined when it carries no code. */
export function codeOf(error: unknown): string | undefined {
  const code = typeof error === 'object' && error !== null && 'code' in error ? error.code : undefined;
  return typeof code === 'string' ? code : undefined;
}

/** Never empty: where every address of a name refused, Node gives an AggregateError without a message, but with a code. */
export function messageOf(error: unknown): string {
  const message = typeof error === 'object' && error !== null && 'message' in error ? error.message : undefined;
  if (typeof message === 'string' && message !== '') return message;
  return codeOf(error) ?? String(error);
}
