/** The two maps that a slot has in the kernel: each is put in its place and taken out by itself, and may be refused by itself. */
import type { BpfMap } from 'libbpf-ts';

export interface SlotMaps {
  readonly classes: BpfMap;
  readonly verdicts: BpfMap;
}

export type SlotPart = keyof SlotMaps;

const PARTS = ['verdicts', 'classes'] as const satisfies readonly SlotPart[];

/** Changes both at once, as the kernel then waits once for both. Returns why, of those that it refused. */
export async function changeBoth(change: (part: SlotPart) => Promise<unknown>): Promise<Map<SlotPart, unknown>> {
  const refused = new Map<SlotPart, unknown>();
  await Promise.all(
    PARTS.map((part) =>
      change(part).catch((error: unknown) => {
        refused.set(part, error);
      }),
    ),
  );
  return refused;
}

/** The maps that the kernel has: those of before where it refused the new ones. Closes the others. */
export function keepPlaced(
  made: SlotMaps,
  before: SlotMaps | undefined,
  refused: ReadonlyMap<SlotPart, unknown>,
): SlotMaps {
  const kept = (part: SlotPart): BpfMap => {
    const stays = refused.has(part) ? before?.[part] : undefined;
    (stays === undefined ? before : made)?.[part].close();
    return stays ?? made[part];
  };
  return { classes: kept('classes'), verdicts: kept('verdicts') };
}

export function closeBoth({ classes, verdicts }: SlotMaps): void {
  classes.close();
  verdicts.close();
}

/** @throws what the first was refused by, if any was */
export function throwFirst(refused: ReadonlyMap<SlotPart, unknown>): void {
  for (const error of refused.values()) throw error;
}
