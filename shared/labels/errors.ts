/** A text as it stands in a message: JSON, cut to 80 characters. */
export function quote(value: unknown): string {
  const text = JSON.stringify(value) ?? 'an absent value';
  return text.length > 80 ? `${text.slice(0, 77)}...` : text;
}

/** One thing that is wrong with a selector or a label. */
export interface LabelProblem {
  /** JSON path of the offending value. */
  readonly path: string;
  readonly message: string;
  /** Problems that this one stands for: the last one of many does for those that are not told. Absent: 1. */
  readonly count?: number;
}

/**
 * A label selector is not valid. `problems` has each problem with its path.
 * @fix Correct the selector at the paths that the message names.
 */
export class SelectorError extends Error {
  readonly code = 'ERR_WEIR_SELECTOR';
  readonly problems: readonly LabelProblem[];

  constructor(problems: readonly LabelProblem[]) {
    super(problems.map((problem) => `${problem.path}: ${problem.message}`).join('; '));
    this.name = 'SelectorError';
    this.problems = problems;
  }
}

/**
 * A label or a label key is not valid.
 * @fix Write it as the message says.
 */
export class LabelError extends Error {
  readonly code = 'ERR_WEIR_LABEL';
  readonly value: string;

  constructor(value: string, reason: string) {
    super(`${quote(value)} ${reason}`);
    this.name = 'LabelError';
    this.value = value;
  }
}
