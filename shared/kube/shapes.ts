/** What others wrote, as far as it has the shape that it must have: nothing is read of the rest. */

/** Nothing of what is no list. */
export function itemsOf<T>(list: readonly T[] | undefined | null): readonly (T | undefined)[] {
  return Array.isArray(list) ? (list as readonly T[]) : [];
}

/** Those that are texts, and not empty. */
export function textsIn(values: readonly unknown[]): string[] {
  return values.filter((value) => typeof value === 'string' && value !== '') as string[];
}

/** The text; undefined where it is none, or empty. */
export function textOf(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined;
}

/** The fields whose values are texts, empty ones too; none of what is no map. */
export function textMapOf(map: Readonly<Record<string, unknown>> | undefined | null): Readonly<Record<string, string>> {
  if (typeof map !== 'object' || map === null || Array.isArray(map)) return {};
  const values = Object.values(map);
  if (values.every((value) => typeof value === 'string')) return map as Readonly<Record<string, string>>;
  return Object.fromEntries(Object.entries(map).filter(([, value]) => typeof value === 'string')) as Record<
    string,
    string
  >;
}

/** The objects of a list. */
export function objectsIn<T extends object>(list: readonly T[] | undefined | null): readonly Partial<T>[] {
  return itemsOf(list).filter((item) => typeof item === 'object' && item !== null) as readonly Partial<T>[];
}
