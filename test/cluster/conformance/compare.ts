/** Two transcripts side by side: every difference, what is accepted of them, and how to read the rest. */
import { isObject } from './client.ts';
import type { Accepted, Difference, Json, Step, Transcript } from './types.ts';

/** All differences, in the order of the real server's transcript. */
export function differences(real: Transcript, other: Transcript): Difference[] {
  const out: Difference[] = [];
  for (const name of new Set([...Object.keys(real), ...Object.keys(other)])) {
    const theirs = new Map((other[name] ?? []).map((step) => [step.step, step]));
    for (const step of real[name] ?? []) {
      out.push(...stepDifferences(name, step, theirs.get(step.step)));
      theirs.delete(step.step);
    }
    for (const step of theirs.values()) out.push(...stepDifferences(name, undefined, step));
  }
  return out;
}

function stepDifferences(name: string, real: Step | undefined, other: Step | undefined): Difference[] {
  const step = real?.step ?? other?.step ?? '';
  if (real === undefined || other === undefined) {
    return [{ case: name, step, path: '', real: real && 'done', other: other && 'done' }];
  }
  const [a, b] = [flatten(real.seen), flatten(other.seen)];
  const out: Difference[] = [];
  for (const path of new Set([...a.keys(), ...b.keys()])) {
    if (a.get(path) !== b.get(path)) out.push({ case: name, step, path, real: a.get(path), other: b.get(path) });
  }
  return out;
}

/** Path -> JSON text of each leaf; empty objects and lists are leaves. */
function flatten(value: Json, path = '', out = new Map<string, string>()): Map<string, string> {
  const entries: [string, Json][] = Array.isArray(value)
    ? value.map((entry, i) => [`${path}[${i}]`, entry])
    : isObject(value)
      ? Object.entries(value).map(([key, entry]) => [path === '' ? key : `${path}.${key}`, entry])
      : [];
  if (entries.length === 0) out.set(path, JSON.stringify(value));
  for (const [child, entry] of entries) flatten(entry, child, out);
  return out;
}

const matches = (pattern: string, text: string): boolean => {
  const parts = pattern.split('*').map((part) => part.replaceAll(/[.+?^${}()|[\]\\]/g, String.raw`\$&`));
  return new RegExp(`^${parts.join('.*')}$`, 's').test(text);
};

export const accepts = (entry: Accepted, found: Difference): boolean =>
  matches(entry.case, found.case) && matches(entry.step, found.step) && matches(entry.path, found.path);

export interface Verdict {
  readonly open: readonly Difference[];
  readonly accepted: readonly Difference[];
  /** Entries of the list that nothing needs any more. */
  readonly stale: readonly Accepted[];
}

export function judge(found: readonly Difference[], list: readonly Accepted[]): Verdict {
  const accepted = found.filter((one) => list.some((entry) => accepts(entry, one)));
  const open = found.filter((one) => !accepted.includes(one));
  return { open, accepted, stale: list.filter((entry) => !found.some((one) => accepts(entry, one))) };
}

/** The differences as text, by case and step; `-` is the real server, `+` the other. */
export function readable(found: readonly Difference[]): string {
  const lines: string[] = [];
  let at = '';
  for (const one of found) {
    const here = `${one.case}: ${one.step}`;
    if (here !== at) lines.push(here);
    at = here;
    if (one.real !== undefined) lines.push(`  - ${one.path}: ${one.real}`);
    if (one.other !== undefined) lines.push(`  + ${one.path}: ${one.other}`);
  }
  return lines.join('\n');
}
