export function compareNumber(a: number, b: number): number {
  return a - b;
}
