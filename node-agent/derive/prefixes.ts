import { addressBits, formatPrefix, parsePrefix } from '@weir/net';
import { type Key, keys } from '@weir/statedb';

/** The key of a canonical prefix in an index of kind `lpm`. */
export function prefixKey(prefix: string): Key {
  const { bytes, bits } = parsePrefix(prefix);
  return keys.prefix(bytes, bits);
}

/** Whether the canonical prefix is one address. */
export function isAddress(prefix: string): boolean {
  return prefix.endsWith(prefix.includes(':') ? '/128' : '/32');
}

/** The prefix of one address, or undefined when the text is no address. */
export function hostPrefix(address: string): string | undefined {
  try {
    const prefix = parsePrefix(address);
    return prefix.bits === addressBits(prefix.family) ? formatPrefix(prefix) : undefined;
  } catch {
    return undefined;
  }
}

/** The canonical prefix, or undefined when the text is none. */
export function prefixOrNone(text: string): string | undefined {
  try {
    return formatPrefix(parsePrefix(text));
  } catch {
    return undefined;
  }
}
