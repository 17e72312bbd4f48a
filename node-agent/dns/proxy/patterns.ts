/** The labels at the end of a pattern that every name of it has: `example.com` of `*.example.com`; none of `*` and `*com`. */
export function fixedSuffix(pattern: string): string {
  const labels = pattern.split('.');
  const last = labels.findLastIndex((label) => label.includes('*'));
  return labels.slice(last + 1).join('.');
}
