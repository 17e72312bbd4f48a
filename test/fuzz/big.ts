/** Values too large to keep and print whole: an object holds a short mark in their place until somebody reads it. */

const DEPTH = 10_000;
const WIDTH = 5_000;
const BYTES = 1_000_000;

/** Rules of each kind: their product is more rows than a slot has room for. */
const RULES = 300;

const tcp = (port: number) => [{ ports: [{ port: `${port}`, protocol: 'TCP' }] }];
const cidr = (at: number, bits = 32): string => `198.18.${at >> 8}.${at & 255}/${bits}`;
const times = (count: number, of: (at: number) => unknown): string =>
  JSON.stringify(Array.from({ length: count }, (_, at) => of(at)).flat());

/** Ingress rules by CIDR beside rules for everybody, each with a port of its own. */
const square = (rules: number): string =>
  times(rules, (at) => [{ fromCIDR: [cidr(at)], toPorts: tcp(1000 + at) }, { toPorts: tcp(20_000 + at) }]);

/** JSON text by mark. A mark is a string of its own, or the key `«key»`. */
const BIG: Readonly<Record<string, (...sizes: readonly number[]) => string>> = {
  // Text, as JSON.stringify ends with the stack where JSON.parse does not.
  '"«deep»"': () => `${'[{"x":'.repeat(DEPTH / 2)}1${'}]'.repeat(DEPTH / 2)}`,
  '"«deep list»"': () => `${'['.repeat(DEPTH)}${']'.repeat(DEPTH)}`,
  '"«wide list»"': () => `[${Array.from({ length: WIDTH }, (_, at) => `{"x${at}":${at}}`).join()}]`,
  '"«wide texts»"': () => `[${Array.from({ length: WIDTH }, (_, at) => `"x${at}"`).join()}]`,
  '"«wide object»"': () => `{${Array.from({ length: WIDTH }, (_, at) => `"k${at}":"${at}"`).join()}}`,
  '"«long text»"': () => `"${'x'.repeat(BYTES)}"`,
  '"«rules that multiply»"': (rules = RULES) => square(rules),
  // Of a size, and the first number of those that tell them from others of their kind.
  '"«selectors»"': (count = 1, first = 0) => times(count, (at) => ({ matchLabels: { app: `s${first + at}` } })),
  '"«broad selectors»"': (count = 1, first = 0) =>
    times(count, (at) => ({ matchExpressions: [{ key: 'app', operator: 'NotIn', values: [`s${first + at}`] }] })),
  '"«cidrs»"': (count = 1, first = 0) => times(count, (at) => cidr(first + at)),
  '"«names of ports»"': (count = 1, first = 0) =>
    times(count, (at) => ({ name: `p${at}`, containerPort: 1 + ((first * count + at) % 65_535), protocol: 'TCP' })),
  '"«ports by name»"': (count = 1) => times(count, (at) => ({ port: `p${at}`, protocol: 'TCP' })),
  '"«addresses»"': (count = 1) => times(count, (at) => ({ type: 'ExternalIP', address: cidr(at).replace('/32', '') })),
  '"«reports»"': (count = 1) =>
    times(count, (at) => ({ uid: `uid-${at}`, generation: 1, reason: 'KernelRefused', message: 'full' })),
  '"«long key»"': () => `"${'k'.repeat(BYTES)}"`,
};

/** To be put where a value is. */
export const BIG_VALUES: readonly unknown[] = [
  '«deep»',
  '«deep list»',
  '«wide list»',
  '«wide texts»',
  '«wide object»',
  '«long text»',
  { '«long key»': 1 },
];

/** An object of its own each time: who reads it may change it. */
export function grown(object: unknown): unknown {
  const marks = /"«([a-z ]+?)((?: \d+)*)»"/g;
  return JSON.parse(
    JSON.stringify(object).replaceAll(marks, (mark, name: string, sizes: string) => {
      return BIG[`"«${name}»"`]?.(...sizes.split(' ').filter(Boolean).map(Number)) ?? mark;
    }),
  );
}
