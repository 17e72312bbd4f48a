/** Values too large to keep and print whole: an object holds a short mark in their place until somebody reads it. */

const DEPTH = 10_000;
const WIDTH = 5_000;
const BYTES = 1_000_000;

/** Rules of each kind: their product is more rows than a slot has room for. */
const RULES = 300;

/** Ingress rules by CIDR beside rules for everybody, each with a port of its own. */
function square(): string {
  const toPorts = (port: number) => [{ ports: [{ port: `${port}`, protocol: 'TCP' }] }];
  return JSON.stringify(
    Array.from({ length: RULES }, (_, at) => [
      { fromCIDR: [`198.18.${at >> 8}.${at & 255}/32`], toPorts: toPorts(1000 + at) },
      { toPorts: toPorts(20_000 + at) },
    ]).flat(),
  );
}

/** JSON text by mark. A mark is a string of its own, or the key `«key»`. */
const BIG: Readonly<Record<string, () => string>> = {
  // Text, as JSON.stringify ends with the stack where JSON.parse does not.
  '"«deep»"': () => `${'[{"x":'.repeat(DEPTH / 2)}1${'}]'.repeat(DEPTH / 2)}`,
  '"«deep list»"': () => `${'['.repeat(DEPTH)}${']'.repeat(DEPTH)}`,
  '"«wide list»"': () => `[${Array.from({ length: WIDTH }, (_, at) => `{"x${at}":${at}}`).join()}]`,
  '"«wide texts»"': () => `[${Array.from({ length: WIDTH }, (_, at) => `"x${at}"`).join()}]`,
  '"«wide object»"': () => `{${Array.from({ length: WIDTH }, (_, at) => `"k${at}":"${at}"`).join()}}`,
  '"«long text»"': () => `"${'x'.repeat(BYTES)}"`,
  '"«rules that multiply»"': square,
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
  return JSON.parse(JSON.stringify(object).replaceAll(/"«[a-z ]+»"/g, (mark) => BIG[mark]?.() ?? mark));
}
