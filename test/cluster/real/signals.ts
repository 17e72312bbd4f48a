/** A signal that would end this process takes something away first. */
const SIGNALS = [
  ['SIGINT', 2],
  ['SIGTERM', 15],
] as const;

/** Calls `stop` on SIGINT and SIGTERM, then ends this process. @returns what takes this back. */
export function stopOnSignal(stop: () => Promise<void>): () => void {
  const handlers = SIGNALS.map(([name, number]) => {
    const handler = () => {
      stop().then(
        () => process.exit(128 + number),
        (error: unknown) => {
          process.stderr.write(`${String(error)}\n`);
          process.exit(1);
        },
      );
    };
    process.once(name, handler);
    return [name, handler] as const;
  });
  return () => {
    for (const [name, handler] of handlers) process.off(name, handler);
  };
}
