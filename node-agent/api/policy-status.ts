import type { PolicyInKernel } from '../core.ts';
import { IMPORTED } from '../create-tables.ts';
import type { EndpointStateRow, PolicyRow } from '../tables.ts';
import { BadRequestError, HttpError, NotFoundError } from './errors.ts';
import type { PolicyStatusModel } from './models.ts';
import type { ApiOptions } from './types.ts';

/** `short`: kubectl's short names, and those of a NodePolicyStatus. */
const KINDS: readonly {
  readonly kind: PolicyRow['kind'];
  readonly short: readonly string[];
  readonly plural?: string;
}[] = [
  { kind: 'CiliumNetworkPolicy', short: ['cnp'], plural: 'ciliumnetworkpolicies' },
  { kind: 'CiliumClusterwideNetworkPolicy', short: ['ccnp'], plural: 'ciliumclusterwidenetworkpolicies' },
  { kind: 'NetworkPolicy', short: ['netpol', 'knp'], plural: 'networkpolicies' },
  { kind: 'BareRules', short: ['rule'] },
];

export interface PolicyRef {
  readonly kind: PolicyRow['kind'];
  readonly namespace: string | undefined;
  readonly name: string;
}

/** Parses KIND/NAMESPACE/NAME, or KIND/NAME of a cluster-wide policy; kinds also by their short names. Throws `BadRequestError`. */
export function parsePolicyRef(text: string): PolicyRef {
  const [kindText = '', ...rest] = text.split('/');
  const named = kindText.toLowerCase();
  const kind = KINDS.find(
    ({ kind: name, short, plural }) => name.toLowerCase() === named || plural === named || short.includes(named),
  )?.kind;
  if (kind === undefined) {
    const known = KINDS.map(({ kind: name, short }) => `${name} (${short.join(' or ')})`).join(', ');
    const place = rest.length === 0 ? 'NAMESPACE/' : '';
    const example = `cnp/${rest.length === 0 ? 'default/' : ''}${text}`;
    const form = rest.length < 2 ? `write KIND/${place}${text}, such as ${example}; ` : '';
    throw new BadRequestError(`policy "${text}": "${kindText}" is no kind; ${form}KIND is one of ${known}`);
  }
  const namespaced = kind === 'CiliumNetworkPolicy' || kind === 'NetworkPolicy';
  const name = rest.at(-1);
  if (rest.length !== (namespaced ? 2 : 1) || name === undefined || rest.includes(''))
    throw new BadRequestError(`policy "${text}": a ${kind} is named ${kind}/${namespaced ? 'NAMESPACE/' : ''}NAME`);
  return { kind, namespace: namespaced ? rest[0] : undefined, name };
}

/** Every policy, or the one asked for, as this node's kernel has it. Throws `NotFoundError`. */
export function policyStatuses({ core }: ApiOptions, ref?: PolicyRef): readonly PolicyStatusModel[] {
  using snapshot = core.db.read();
  const wanted = [...snapshot.all(core.tables.policies)].filter((row) => ref === undefined || matches(row, ref));
  const imported = importedUnknown(core, ref);
  const unlisted = core.db.pendingInitialisers(core.tables.policies).filter((source) => source !== IMPORTED);
  const unknown = `which policies there are is not known yet: ${unlisted.join(', ')} ${unlisted.length === 1 ? 'is' : 'are'} not listed; what was enforced stays enforced`;
  // Imported rules are known without lists.
  if (unlisted.length > 0 && (ref === undefined ? wanted.length + imported.length === 0 : ref.kind !== 'BareRules'))
    throw new HttpError(503, unknown);
  if (ref !== undefined && wanted.length + imported.length === 0)
    throw new NotFoundError(
      `no ${ref.kind} ${ref.namespace === undefined ? '' : `${ref.namespace}/`}${ref.name} has reached this node: does it exist, ` +
        'is it valid (kubectl describe), and is the operator running?',
    );
  const realised = core.realised();
  const behind = realised.revision < core.policyRevision();
  const inKernel = core.policiesInKernel();
  const states = [...snapshot.all(core.tables.endpointStates)];
  const statuses = wanted.map((row): PolicyStatusModel => {
    const { uid, kind, namespace, name, generation } = row;
    const kernel = inKernel.get(uid);
    const selects = selected(states, uid);
    const failures = realised.failures.filter((failure) => failure.uid === uid);
    const cluster = snapshot.get(core.tables.policyStatuses, uid)?.status;
    return {
      kind,
      ...(namespace === undefined ? {} : { namespace }),
      name,
      uid,
      wanted: generation,
      kernel: kernel?.generation ?? 0,
      endpoints: Math.max(kernel?.endpoints ?? 0, selects),
      state:
        failures.length > 0
          ? 'Failing'
          : stateInKernel({ wanted: { generation, endpoints: selects }, kernel, moreMayCome: behind }),
      failures: failures.map(({ generation: of, reason, message }) => ({ generation: of, reason, message })),
      ...(cluster === undefined ? {} : { cluster }),
    };
  });
  const others =
    unlisted.length === 0 || ref !== undefined
      ? []
      : [unknownPolicies('CiliumNetworkPolicy', 'InputsIncomplete', unknown)];
  return [...statuses, ...imported, ...others].sort((a, b) => (textOf(a) < textOf(b) ? -1 : 1));
}

/** Stands for all imported rules while nobody knows which there are: none in the table is not none in force. */
function importedUnknown(core: ApiOptions['core'], ref: PolicyRef | undefined): readonly PolicyStatusModel[] {
  const waiting = core.rulesWait();
  if (waiting?.reason !== 'ImportedRulesUnknown' || (ref !== undefined && ref.kind !== 'BareRules')) return [];
  return [unknownPolicies('BareRules', waiting.reason, waiting.message)];
}

function unknownPolicies(kind: PolicyStatusModel['kind'], reason: string, message: string): PolicyStatusModel {
  return {
    ...{ kind, name: '(unknown)', uid: '', wanted: 0, kernel: 0, endpoints: 0, state: 'Failing' },
    failures: [{ generation: 0, reason, message }],
  };
}

interface Progress {
  readonly wanted: PolicyInKernel;
  readonly kernel: PolicyInKernel | undefined;
  /** Endpoints may come of which nothing is known yet. */
  readonly moreMayCome: boolean;
}

function stateInKernel({ wanted, kernel, moreMayCome }: Progress): PolicyStatusModel['state'] {
  if (kernel === undefined) return moreMayCome || wanted.endpoints > 0 ? 'Pending' : 'NoEndpoints';
  // The kernel has not acknowledged it for endpoints that have come since.
  return kernel.generation === wanted.generation && wanted.endpoints <= kernel.endpoints ? 'Programmed' : 'Pending';
}

function selected(states: readonly EndpointStateRow[], uid: string): number {
  return states.filter((state) => state.policies[uid] !== undefined).length;
}

function matches(row: PolicyRow, ref: PolicyRef): boolean {
  return (
    row.kind === ref.kind && row.name === ref.name && (ref.namespace === undefined || row.namespace === ref.namespace)
  );
}

function textOf({ kind, namespace, name, uid }: PolicyStatusModel): string {
  return `${kind}/${namespace ?? ''}/${name}/${uid}`;
}
