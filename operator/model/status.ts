/** The status of a policy, folded from what was read and what the nodes report. Pure (design section 7). */
import type { Condition, PolicyStatus } from '@weir/kube';
import { compareText } from '@weir/labels';
import type { CidrGroupRef, PolicyProblem, ServiceRef } from '@weir/policy';
import { LONGEST_MESSAGE, oneLine } from '../texts.ts';
import type { Reported } from './node-progress.ts';
import type { AmbiguousName, MissingName, MissingNames } from './port-names.ts';

const MOST_FAILURES = 5;
const MOST_NODES = 3;
/** Begins what condition Valid says of elements that are enforced, and yet do not hold or may surprise. */
export const WARNING = 'Warning: ';
/** Characters of the reason that a node gives. */
const LONGEST_REASON = 128;
/** A node's reason that is nothing the node can mend: pods there were connected by another plugin, or lost their interface. */
export const NOT_CONNECTED = 'PodNotConnected';

export interface StatusInput {
  readonly generation: number;
  readonly problems: readonly PolicyProblem[];
  /** Generation that the ResolvedPolicy holds; undefined: there is none. */
  readonly enforcedGeneration: number | undefined;
  /** Rule elements in the ResolvedPolicy. */
  readonly rules: number;
  /** Live nodes that host selected pods. */
  readonly nodes: readonly string[];
  /** The same of nodes that are down: they keep what they had, and nobody waits for them. */
  readonly down: readonly string[];
  /** The API server holds this generation for the nodes to read. */
  readonly written: boolean;
  /** Other live nodes that have not caught up with this generation, and may enforce an earlier one. */
  readonly lagging: readonly string[];
  /** Selected pods that have an address. */
  readonly endpoints: number;
  /** Port names that stand for nothing. */
  readonly missingNames: MissingNames;
  /** References that no Service fulfils. */
  readonly missingServices: readonly ServiceRef[];
  /** The same of CiliumCIDRGroups. */
  readonly missingGroups: readonly CidrGroupRef[];
  readonly reported: (node: string) => Reported;
  readonly previous: PolicyStatus | undefined;
  /** RFC 3339, for conditions whose status flips. */
  readonly now: string;
}

/** What becomes of parts of a policy that cannot be read, or cost too much. */
const CLOSED = 'what is refused allows nothing, and denies all that it may mean; the rest is enforced';

/** Why this generation is not enforced at all. */
type Refusal = PolicyProblem['code'];
type Verdict = Pick<Condition, 'status' | 'reason' | 'message'>;
type NodeFailure = { readonly node: string; readonly reason: string; readonly message: string };

export function foldStatus(input: StatusInput): PolicyStatus {
  const worst = input.problems.find(({ code }) => code === 'InvalidSpec' || code === 'BudgetExceeded')?.code;
  const refused = input.enforcedGeneration === input.generation ? undefined : worst;
  const behind = input.nodes.filter((node) => {
    const { state, failures: of, unlisted } = input.reported(node);
    return state !== 'reached' || of.length + unlisted > 0;
  });
  const failures = refused === undefined ? failuresOf(input) : [];

  const valid = validity(input, worst, refused);
  const resolved = references(input, refused);
  const programmed = progress(input, refused, behind, failures);
  const ready = summary([valid, resolved, programmed]);

  const condition = (type: Condition['type'], verdict: Verdict): Condition => {
    const before = input.previous?.conditions?.find((other) => other.type === type);
    return {
      type,
      status: verdict.status,
      reason: verdict.reason,
      message: oneLine(verdict.message),
      observedGeneration: input.generation,
      lastTransitionTime: before?.status === verdict.status ? before.lastTransitionTime : input.now,
    };
  };
  return {
    observedGeneration: input.generation,
    summary: {
      nodes:
        refused === undefined
          ? `${input.nodes.length - behind.length}/${input.nodes.length + input.lagging.length}`
          : `0/${input.nodes.length}`,
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

function validity(input: StatusInput, worst: Refusal | undefined, refused: Refusal | undefined): Verdict {
  const code = worst ?? 'UnsupportedField';
  const problems = input.problems.filter((problem) => problem.code === code);
  const warnings = worst === undefined ? warningsOf(input.problems) : [];
  if (problems.length === 0) {
    const message =
      warnings.length === 0 ? 'The policy is valid.' : `The policy is valid. ${WARNING}${fitting(warnings)}`;
    return { status: 'True', reason: 'Valid', message };
  }
  // The end says what stays enforced: long problems must not push it out.
  const consequence = worst === undefined ? '' : `; ${refused === undefined ? CLOSED : enforced(input)}`;
  const room = LONGEST_MESSAGE - consequence.length;
  const text = fitting(
    problems.map(({ path, message, count }) => ({
      text: worst === 'BudgetExceeded' ? message : `${path}: ${message}`,
      count,
    })),
    room,
  );
  const left = Math.max(0, room - text.length - '. '.length - WARNING.length);
  const warning = warnings.length === 0 || room - text.length < 100 ? '' : `. ${WARNING}${fitting(warnings, left)}`;
  return { status: 'False', reason: code, message: `${text}${consequence}${warning}` };
}

/** A text of the problems, and how many there are. */
interface Saying {
  readonly text: string;
  /** Default 1. */
  readonly count: number | undefined;
}

/** As many of the texts as there is room for, at least a part of the first, and how many problems there are beside them. */
function fitting(sayings: readonly Saying[], room = LONGEST_MESSAGE): string {
  const more = (count: number): string => (count === 0 ? '' : ` (and ${count} more)`);
  let joined = '';
  let left = sayings.reduce((sum, { count = 1 }) => sum + count, 0);
  for (const [index, { text, count = 1 }] of sayings.entries()) {
    const longer = index === 0 ? text : `${joined}; ${text}`;
    const after = left - count;
    if (longer.length + more(after).length > room) {
      if (index > 0) return `${joined}${more(left)}`;
      return `${oneLine(text, Math.max(1, room - more(after).length))}${more(after)}`;
    }
    joined = longer;
    left = after;
  }
  return `${joined}${more(left)}`;
}

/** Warnings, each text once, with the places that it is about. */
function warningsOf(problems: readonly PolicyProblem[]): Saying[] {
  const alike = Map.groupBy(
    problems.filter(({ code }) => code === 'Warning'),
    ({ message }) => message,
  );
  return Array.from(alike, ([message, warnings]) => ({
    text: `${some(warnings.map(({ path }) => path))}: ${message}`,
    count: warnings.reduce((sum, { count = 1 }) => sum + count, 0),
  }));
}

function enforced(input: StatusInput): string {
  return input.enforcedGeneration === undefined
    ? 'nothing of this policy is enforced'
    : `generation ${input.enforcedGeneration} stays enforced`;
}

function references(input: StatusInput, refused: Refusal | undefined): Verdict {
  if (refused === 'InvalidSpec') return { status: 'Unknown', reason: 'Invalid', message: 'The policy cannot be read.' };
  if (refused !== undefined) return { status: 'Unknown', reason: refused, message: 'The policy is not resolved.' };
  const { first, ambiguous, more } = input.missingNames;
  const others = more ? '; there may be more: not all port names were looked for' : '';
  const absent = [...input.missingServices.map(missingService), ...input.missingGroups.map(missingGroup)];
  if (absent.length > 0) {
    const names = first.length === 0 ? '' : '; some port names no container port has';
    const consequence = `; until there is one, nobody is meant${names}`;
    const text = fitting(absent, LONGEST_MESSAGE - consequence.length);
    const reason = input.missingServices.length > 0 ? 'ServiceNotFound' : 'CIDRGroupNotFound';
    return { status: 'False', reason, message: `${text}${consequence}` };
  }
  if (first.length === 0 && ambiguous.length > 0) {
    const consequence = `; until pods of equal labels agree, an allow by the name reaches none of them${others}`;
    const text = fitting(ambiguous.map(several), LONGEST_MESSAGE - consequence.length);
    return { status: 'False', reason: 'PortNameAmbiguous', message: `${text}${consequence}` };
  }
  if (first.length === 0) {
    const message = more
      ? 'No missing reference was found, but not all were checked: the policy names too many ports of too many pods; split it.'
      : 'Everything that the policy names is resolved.';
    return { status: 'True', reason: 'Resolved', message };
  }
  const consequence = `; until one has, ${first.length === 1 ? 'it' : 'such a name'} matches no port${others}`;
  const text = fitting(first.map(missing), LONGEST_MESSAGE - consequence.length);
  return { status: 'False', reason: 'PortNameNotFound', message: `${text}${consequence}` };
}

function missingService({ path, name, namespace }: ServiceRef): Saying {
  const what = name === undefined ? 'no Service that the selector selects' : `no Service ${JSON.stringify(name)}`;
  const where = namespace === undefined ? 'in any namespace' : `in namespace ${JSON.stringify(namespace)}`;
  return { text: `${path}: there is ${what} ${where}`, count: undefined };
}

function missingGroup({ path, name }: CidrGroupRef): Saying {
  const what = name === undefined ? 'that the selector selects' : JSON.stringify(name);
  return { text: `${path}: there is no CiliumCIDRGroup ${what}`, count: undefined };
}

function several({ path, name, protocol, numbers }: AmbiguousName): Saying {
  const each = numbers.slice(0, 3).map(({ number, pod }) => `${number} (pod ${pod})`);
  const left = numbers.length - each.length;
  const list = left > 0 ? `${each.join(', ')} and ${left} more` : each.join(', ');
  return {
    text: `${path}: port name ${JSON.stringify(name)} (${protocol}) is ${list}, of pods of equal labels`,
    count: undefined,
  };
}

function missing({ path, name, protocols, asked }: MissingName): Saying {
  const who = asked === 'selected pods' ? 'no pod that the policy selects' : 'no peer of the rule';
  const text = `${path}: port name "${name}" (${protocols.join(', ')}): ${who} has a container port of this name`;
  return { text, count: undefined };
}

function progress(
  input: StatusInput,
  refused: Refusal | undefined,
  behind: readonly string[],
  failures: readonly NodeFailure[],
): Verdict {
  const { generation, nodes } = input;
  if (refused === 'InvalidSpec') {
    return { status: 'False', reason: 'Invalid', message: `Generation ${generation} is invalid: ${enforced(input)}.` };
  }
  if (refused !== undefined) {
    const message = `Generation ${generation} needs more than it may: ${enforced(input)}.`;
    return { status: 'False', reason: refused, message };
  }
  const down = input.down.length === 0 ? '' : ` Down, and not waited for: ${some(input.down)}.`;
  const [first] = failures;
  if (first !== undefined) {
    const others = failures.length === 1 ? '' : ` (and ${failures.length - 1} more)`;
    const unconnected = failures.every(({ reason }) => reason === NOT_CONNECTED) ? NOT_CONNECTED : 'NodeFailed';
    return {
      status: 'False',
      reason: unconnected,
      message: `${first.node}: ${first.reason}: ${first.message}${others}`,
    };
  }
  if (behind.length > 0) {
    const named = behind.map((node) => {
      const { state, unlisted } = input.reported(node);
      if (state === 'silent') return `${node} (has reported none)`;
      return state === 'reached' ? `${node} (has ${unlisted} failures more than it reports)` : node;
    });
    return {
      status: 'False',
      reason: 'Progressing',
      message: `${behind.length} of ${nodes.length} nodes do not enforce generation ${generation} yet: ${some(named)}.${down}`,
    };
  }
  const nobody =
    input.endpoints === 0
      ? 'The policy selects no running pod that has an identity.'
      : 'No live node hosts a pod that the policy selects.';
  if (nodes.length === 0 && !input.written) {
    const message = `${nobody} Generation ${generation} has not been handed to the nodes yet.${down}`;
    return { status: 'False', reason: 'Progressing', message };
  }
  if (input.lagging.length > 0) {
    const why = nodes.length === 0 ? nobody : 'All nodes with selected pods have it.';
    const one = input.lagging.length === 1;
    const waits = `${input.lagging.length} ${one ? 'node' : 'nodes'} that may enforce an earlier generation ${one ? 'has' : 'have'}`;
    return {
      status: 'False',
      reason: 'Progressing',
      message: `${why} ${waits} not caught up with generation ${generation} yet: ${some(input.lagging)}.${down}`,
    };
  }
  if (nodes.length === 0) return { status: 'True', reason: 'NoMatchingEndpoints', message: `${nobody}${down}` };
  return {
    status: 'True',
    reason: 'Programmed',
    message: `Generation ${generation} is in the kernel of ${nodes.length === 1 ? 'the 1 node' : `all ${nodes.length} nodes`} that must enforce it.${down}`,
  };
}

function failuresOf(input: StatusInput): NodeFailure[] {
  return [...input.nodes].sort(compareText).flatMap((node) =>
    input
      .reported(node)
      .failures.map(({ reason, message }) => ({
        node: oneLine(node),
        reason: oneLine(reason, LONGEST_REASON),
        message: oneLine(message),
      }))
      .sort((a, b) => compareText(a.reason, b.reason) || compareText(a.message, b.message)),
  );
}

function summary(verdicts: readonly Verdict[]): Verdict {
  const bad = verdicts.find((verdict) => verdict.status !== 'True');
  if (bad !== undefined) return { status: 'False', reason: bad.reason, message: bad.message };
  const last = verdicts.at(-1);
  return { status: 'True', reason: last?.reason ?? 'Ready', message: last?.message ?? '' };
}

/** The first few of a list. */
function some(names: readonly string[]): string {
  const more = names.length > MOST_NODES ? ` and ${names.length - MOST_NODES} more` : '';
  return `${names.slice(0, MOST_NODES).join(', ')}${more}`;
}
