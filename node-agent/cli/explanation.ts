/** Answers of `weir explain`, as text. */
import { line } from '@weir/process/printable';
import type { EndExplanation, FlowExplanation, RuleRef } from '../api/models.ts';

const REASONS: Readonly<Record<string, string>> = {
  'mode-never': 'policy enforcement is switched off',
  'not-enforced': 'no policy selects the pod in this direction',
  'explicit-deny': 'a deny rule matches',
  'asks-authentication': 'a rule asks for authentication, which Weir does not do',
  'asks-proxy': 'a rule asks for a proxy, and there is none',
  'asks-names': 'the DNS proxy answers names that a rule has, and no others',
  'rule-allows': 'a rule allows it',
  localhost: 'a node may reach its own pods unless a rule denies it',
  'no-default-deny': 'no rule matches, and no policy that selects the pod has default deny',
  'no-match': 'policies select the pod, and none of their rules allows it',
};

/** Rules of one kind that a text has. */
const MOST = 20;

export function textOfExplanation({ verdict, source, destination, protocol, port, ends }: FlowExplanation): string {
  return [
    line(`${verdict.toUpperCase()}: ${source} -> ${destination} ${protocol} ${port}`),
    ...ends.map(textOfEnd),
  ].join('');
}

function textOfEnd({ direction, at, verdict, reason, deciding, others, selecting, kernel }: EndExplanation): string {
  return [
    line(`${direction} at ${at}: ${verdict}, ${REASONS[reason] ?? reason}`),
    ...rulesText('decides', deciding),
    ...rulesText('matches, outranked', others),
    ...(reason === 'no-match' ? rulesText('selects the pod', selecting) : []),
    ...(kernel === undefined ? [] : [line(`  kernel: ${kernel.verdict ?? 'not asked'} (${kernel.reason})`)]),
  ].join('');
}

/** Ends at which the kernel does something else than policies say. */
export function disagreements({ ends }: FlowExplanation): readonly string[] {
  return ends.flatMap(({ direction, at, verdict, kernel }) =>
    kernel?.verdict === undefined || kernel.verdict === verdict
      ? []
      : [`${direction} at ${at}: policies say ${verdict}, and the kernel says ${kernel.verdict}`],
  );
}

function rulesText(what: string, refs: readonly RuleRef[]): readonly string[] {
  const shown = refs.slice(0, MOST).map(({ policy, path, says, file, line: at, column }) => {
    const place = file === undefined ? '' : ` (${file}:${at}:${column})`;
    return line(`  ${what}: ${policy} ${path}${says === undefined ? '' : `, ${says}`}${place}`);
  });
  return refs.length > MOST ? [...shown, line(`  ${what}: ${refs.length - MOST} more`)] : shown;
}
