/**
 * How often a property that takes seconds is tried: `all` times where `CI` is set, as in .ci/run, and a tenth of that at a desk. What such a test
 * counts while it runs, to show that it met something, is compared with `runs` of the count, too.
 */
export function runs(all: number): number {
  return process.env.CI ? all : Math.ceil(all / 10);
}
