/** Policies with one part that cannot be read. For tests. */

type Fields = Record<string, unknown>;

/** What stands for nothing, wherever it stands. */
export const JUNK: readonly unknown[] = ['junk', '', -1, 1.5, true, { junk: 1 }, [['junk']]];

/** Puts `value` at one place of the spec, or beside it under a name that is none. */
export function spoil(object: unknown, at: number, value: unknown, beside: boolean): unknown {
  const copy = structuredClone(object) as Fields;
  const places: { holder: Fields; key: string }[] = [];
  const walk = (holder: Fields, key: string): void => {
    places.push({ holder, key });
    const node = holder[key];
    if (typeof node === 'object' && node !== null) for (const each of Object.keys(node)) walk(node as Fields, each);
  };
  for (const key of ['spec', 'specs']) if (key in copy) walk(copy, key);
  const { holder, key } = places[at % places.length] ?? { holder: copy, key: 'spec' };
  if (beside && !Array.isArray(holder)) holder[`${key}s`] = value;
  else holder[key] = value;
  return copy;
}
