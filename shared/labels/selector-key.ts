import { LabelError, quote } from './errors.ts';

const NAME = /^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$/;
const PREFIX = /^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$/;
const SOURCE = /^[A-Za-z0-9][A-Za-z0-9_-]*$/;

export interface SelectorKeyOptions {
  /** `cilium` (default): `source:key`, no source means any. `kubernetes`: a plain key, its source is k8s (NetworkPolicy). */
  readonly keys?: 'cilium' | 'kubernetes';
}

/**
 * Canonical `source:key` of a selector's key (spec 2.2): `app`, `:app`, `unspec:app` and `any:app` are `any:app`.
 * @throws LabelError when the key is no Kubernetes label key.
 */
export function parseSelectorKey(text: string, options: SelectorKeyOptions = {}): string {
  const { key, reason } = readSelectorKey(text, options);
  if (key === undefined) throw new LabelError(text, reason);
  return key;
}

/** The same, without a throw. `reason`: what is wrong with the text. */
export function readSelectorKey(
  text: string,
  options: SelectorKeyOptions = {},
): { readonly key: string; readonly reason?: undefined } | { readonly key?: undefined; readonly reason: string } {
  const colon = text.indexOf(':');
  if (options.keys === 'kubernetes') {
    if (colon >= 0) return { reason: 'has a ":": a Kubernetes selector takes plain label keys, remove the source' };
    return readKey(text, 'k8s');
  }
  const source = text.slice(0, Math.max(colon, 0));
  const key = text.slice(colon + 1);
  if (key.includes(':')) return { reason: 'has a ":" after the source: write source:key, such as k8s:app' };
  if (source !== '' && !SOURCE.test(source)) {
    return { reason: `has the source ${quote(source)}: write one such as k8s, reserved or any` };
  }
  return readKey(key, source === '' || source === 'unspec' ? 'any' : source);
}

/** Why the text is no Kubernetes label value; undefined when it is one. */
export function labelValueProblem(value: string): string | undefined {
  if (value === '' || NAME.test(value)) return undefined;
  if (value.length > 63) return `is ${value.length} characters long: a label value has at most 63`;
  return 'is no label value: use letters, digits, "-", "_" and ".", with a letter or digit at both ends';
}

function readKey(key: string, source: string): ReturnType<typeof readSelectorKey> {
  const slashes = key.split('/');
  if (slashes.length > 2) return { reason: 'has two "/": a label key is name or prefix/name' };
  const name = slashes.at(-1) ?? '';
  const prefix = slashes.length === 2 ? slashes[0] : undefined;
  if (name === '') return { reason: 'has no name: a label key is name or prefix/name' };
  if (!NAME.test(name)) {
    return {
      reason:
        'is no label key: the name is at most 63 letters, digits, "-", "_" and ".", with a letter or digit at both ends',
    };
  }
  if (prefix !== undefined && (prefix.length > 253 || !PREFIX.test(prefix))) {
    return { reason: 'is no label key: the part before "/" must be a lower-case DNS name of at most 253 characters' };
  }
  return { key: `${source}:${key}` };
}
