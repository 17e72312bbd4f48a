/** How many rows the policy slots of a node may have. A row is counted as `MOST_ROWS` of the compiler counts it. */
export interface RowLimits {
  /** All slots together; 0: no limit. What is within `OWN_ROWS` of a namespace is given beyond it, too. */
  readonly perNode: number;
  /** Slots that the endpoints of one namespace have; 0: no limit. */
  readonly perNamespace: number;
}

/**
 * A row costs the agent some 550 bytes: all of a node cost 280 MB. A namespace may have one slot whose directions are both as large as one
 * may be: it takes 0.3 s to compile, and 0.8 s to write. Four such namespaces leave the others what is their own.
 */
export const DEFAULT_ROW_LIMITS: RowLimits = { perNode: 520_000, perNamespace: 130_000 };

/** What each namespace may have, however many rows the others have: 20 to 200 slots of ordinary policies. */
export const OWN_ROWS = 4_096;
