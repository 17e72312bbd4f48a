/**
 * How often a property that takes seconds is tried: `all` times where `CI` is set, as in .ci/run, and a tenth of that at a desk. What such a test
 * counts while it runs, to show that it met something, is compared with `runs` of the count, too.
 */
export function runs(all: number): number {
  return process.env.CI ? all : Math.ceil(all / 10);
}

/** Of cases that take seconds together: all of them where `CI` is set, and every eighth at a desk, from another one on each time. */
export function sample<T>(all: readonly T[]): readonly T[] {
  const first = Math.floor(Math.random() * Math.min(8, all.length));
  return process.env.CI ? all : all.filter((_, index) => index % 8 === first);
}
