/** The status of a policy, folded from what was read and what the nodes report. Pure (design section 7). */
import type { Condition, PolicyStatus } from '@weir/kube';
import { compareText } from '@weir/labels';
import type { PolicyProblem } from '@weir/policy';

const MOST_FAILURES = 5;
const LONGEST_MESSAGE = 1024;

export interface StatusInput {
  readonly generation: number;
  readonly problems: readonly PolicyProblem[];
  /** Generation that the ResolvedPolicy holds; undefined: there is none. */
  readonly enforcedGeneration: number | undefined;
  /** Rule elements in the ResolvedPolicy. */
  readonly rules: number;
  /** Live nodes that host selected pods. */
  readonly nodes: readonly string[];
  /** Selected pods that have an address. */
  readonly endpoints: number;
  /** What a node reports of this policy. */
  readonly reported: (node: string) => {
    readonly generation: number | undefined;
    readonly failures: readonly { readonly generation: number; readonly reason: string; readonly message: string }[];
  };
  readonly previous: PolicyStatus | undefined;
  /** RFC 3339, for conditions whose status flips. */
  readonly now: string;
}

type Verdict = Pick<Condition, 'status' | 'reason' | 'message'>;

export function foldStatus(input: StatusInput): PolicyStatus {
  const invalid = input.problems.some((problem) => problem.code === 'InvalidSpec');
  const reached = input.nodes.filter((node) => input.reported(node).generation === input.generation);
  const failures = invalid ? [] : failuresOf(input);

  const valid = validity(input, invalid);
  const resolved: Verdict = invalid
    ? { status: 'Unknown', reason: 'Invalid', message: 'The policy cannot be read.' }
    : { status: 'True', reason: 'Resolved', message: 'Everything that the policy names is resolved.' };
  const programmed = progress(input, invalid, reached, failures);
  const ready = summary([valid, resolved, programmed]);

  const condition = (type: Condition['type'], verdict: Verdict): Condition => {
    const before = input.previous?.conditions?.find((other) => other.type === type);
    return {
      type,
      status: verdict.status,
      reason: verdict.reason,
      message: shorten(verdict.message),
      observedGeneration: input.generation,
      lastTransitionTime: before?.status === verdict.status ? before.lastTransitionTime : input.now,
    };
  };
  return {
    observedGeneration: input.generation,
    summary: {
      nodes: `${invalid ? 0 : reached.length}/${input.nodes.length}`,
      endpoints: input.endpoints,
      rules: input.rules,
    },
    conditions: [
      condition('Valid', valid),
      condition('ResolvedRefs', resolved),
      condition('Programmed', programmed),
      condition('Ready', ready),
    ],
    ...(failures.length === 0 ? {} : { failures: failures.slice(0, MOST_FAILURES), failureCount: failures.length }),
  };
}

function validity(input: StatusInput, invalid: boolean): Verdict {
  const code = invalid ? 'InvalidSpec' : 'UnsupportedField';
  const [first, ...others] = input.problems.filter((problem) => problem.code === code);
  if (first === undefined) {
    const warnings = input.problems.filter((problem) => problem.code === 'Warning');
    const message =
      warnings.length === 0
        ? 'The policy is valid.'
        : `The policy is valid. Note: ${warnings.map((w) => `${w.path}: ${w.message}`).join('; ')}`;
    return { status: 'True', reason: 'Valid', message };
  }
  const more = others.length === 0 ? '' : ` (and ${others.length} more)`;
  const consequence = invalid ? `; ${enforced(input)}` : '';
  // The end says what stays enforced: a long problem must not push it out.
  const problem = shorten(`${first.path}: ${first.message}`, LONGEST_MESSAGE - 100);
  return { status: 'False', reason: code, message: `${problem}${more}${consequence}` };
}

function enforced(input: StatusInput): string {
  return input.enforcedGeneration === undefined
    ? 'nothing of this policy is enforced'
    : `generation ${input.enforcedGeneration} stays enforced`;
}

function progress(
  input: StatusInput,
  invalid: boolean,
  reached: readonly string[],
  failures: readonly { readonly node: string; readonly reason: string; readonly message: string }[],
): Verdict {
  if (invalid) {
    return {
      status: 'False',
      reason: 'Invalid',
      message: `Generation ${input.generation} is invalid: ${enforced(input)}.`,
    };
  }
  if (input.nodes.length === 0) {
    const message =
      input.endpoints === 0
        ? 'The policy selects no pod that runs.'
        : 'No live node hosts a pod that the policy selects.';
    return { status: 'True', reason: 'NoMatchingEndpoints', message };
  }
  const [first] = failures;
  if (first !== undefined) {
    const others = failures.length === 1 ? '' : ` (and ${failures.length - 1} more)`;
    return {
      status: 'False',
      reason: 'NodeFailed',
      message: `${first.node}: ${first.reason}: ${first.message}${others}`,
    };
  }
  const missing = input.nodes.length - reached.length;
  if (missing > 0) {
    return {
      status: 'False',
      reason: 'Progressing',
      message: `${missing} of ${input.nodes.length} nodes do not enforce generation ${input.generation} yet.`,
    };
  }
  return {
    status: 'True',
    reason: 'Programmed',
    message: `Generation ${input.generation} is in the kernel of ${reached.length === 1 ? 'the 1 node' : `all ${reached.length} nodes`} that must enforce it.`,
  };
}

function failuresOf(input: StatusInput): { node: string; reason: string; message: string }[] {
  return [...input.nodes].sort(compareText).flatMap((node) =>
    input
      .reported(node)
      .failures.filter((failure) => failure.generation === input.generation)
      .map(({ reason, message }) => ({ node, reason, message: shorten(message) }))
      .sort((a, b) => compareText(a.reason, b.reason) || compareText(a.message, b.message)),
  );
}

function summary(verdicts: readonly Verdict[]): Verdict {
  const bad = verdicts.find((verdict) => verdict.status !== 'True');
  if (bad !== undefined) return { status: 'False', reason: bad.reason, message: bad.message };
  return { status: 'True', reason: 'Ready', message: verdicts.at(-1)?.message ?? '' };
}

function shorten(text: string, longest = LONGEST_MESSAGE): string {
  return text.length <= longest ? text : `${text.slice(0, longest - 1)}…`;
}
