/**
 * Whether the state of one resourceVersion holds that of another: versions are numbers that grow over all objects of a kind, until the API
 * server's storage is put back to an earlier state. False where they are no numbers and differ.
 */
export function reachesVersion(version: string, wanted: string): boolean {
  if (version === wanted) return true;
  return /^\d+$/.test(version) && /^\d+$/.test(wanted) && BigInt(version) >= BigInt(wanted);
}
