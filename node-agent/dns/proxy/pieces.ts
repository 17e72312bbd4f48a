/** Does work in pieces of some 5 ms, between which others have their turn. */
const PIECE_MS = 5;

export async function inPieces(work: Iterable<void>): Promise<void> {
  let began = performance.now();
  for (const _ of work) {
    if (performance.now() - began < PIECE_MS) continue;
    await new Promise((resolve) => setImmediate(resolve));
    began = performance.now();
  }
}
