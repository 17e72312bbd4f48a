import { createHash } from 'node:crypto';
import { formatLabel, formatLabels, LabelError, type LabelMap, parseLabels as parse, parseLabel } from '@weir/labels';
import { BadRequestError } from './errors.ts';
import type { IdentityModel } from './models.ts';

/** Parses `source:key=value` texts (spec 2.1). Throws `BadRequestError`. */
export function parseLabels(texts: readonly string[]): LabelMap {
  return refusing(() => parse(texts));
}

/** Labels as rules carry them: `name=x` is `unspec:name=x`. Throws `BadRequestError`. */
export function canonicalLabels(texts: readonly string[]): readonly string[] {
  return refusing(() => texts.map((text) => formatLabel(parseLabel(text))));
}

function refusing<R>(parse: () => R): R {
  try {
    return parse();
  } catch (error) {
    if (error instanceof LabelError) throw new BadRequestError(error.message);
    throw error;
  }
}

/** Whether a set carries a wanted label. Without a source in `wanted`, any source does; without a value, any value. */
export function carries(labels: LabelMap, wanted: string): boolean {
  const equals = wanted.indexOf('=');
  const left = equals < 0 ? wanted : wanted.slice(0, equals);
  const value = equals < 0 ? undefined : wanted.slice(equals + 1);
  const colon = left.indexOf(':');
  const source = colon < 1 || left.startsWith('any:') ? undefined : left.slice(0, colon);
  const key = left.slice(colon + 1);
  return Object.entries(labels).some(([full, found]) => {
    const at = full.indexOf(':');
    return (
      full.slice(at + 1) === key &&
      (source === undefined || full.slice(0, at) === source) &&
      (value === undefined || found === value)
    );
  });
}

export function identityModel(id: number, labels: LabelMap): IdentityModel {
  const texts = formatLabels(labels);
  return {
    id,
    labels: texts,
    labelsSHA256: createHash('sha256')
      .update(texts.map((text) => `${text};`).join(''))
      .digest('hex'),
  };
}
