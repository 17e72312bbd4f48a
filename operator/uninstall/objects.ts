/** Finds what Weir wrote into the API and removes it. Every function may be called again. */
import {
  ApiError,
  type CiliumPolicyObject,
  type KubeClient,
  type KubeObject,
  type PolicyStatus,
  type Resource,
  resources,
} from '@weir/kube';
import { withoutDepths } from '@weir/process/depth';
import { type Draft, produce } from 'immer';
import { UninstallError } from '../errors.ts';

const PAGE = 500;
/** Requests at once. */
const CONCURRENCY = 8;

/** Weir's own kinds, and Cilium's in which Weir makes objects. Rules first, so that no rule names a set that is gone. */
const DERIVED: readonly { readonly resource: Resource<KubeObject>; readonly shared: boolean }[] = [
  { resource: resources.ResolvedPolicy, shared: false },
  { resource: resources.PeerSet, shared: false },
  { resource: resources.CiliumEndpointSlice, shared: true },
  { resource: resources.CiliumEndpoint, shared: true },
  { resource: resources.CiliumIdentity, shared: true },
  { resource: resources.NodePolicyStatus, shared: false },
];

const CONDITIONS: ReadonlySet<string> = new Set(['Valid', 'ResolvedRefs', 'Programmed', 'Ready']);
const FIELDS = ['observedGeneration', 'summary', 'failures', 'failureCount'] as const;

/** Deletes every derived object; of the shared kinds, those that a Weir component has written. Throws ApiError. */
export async function deleteDerived(client: KubeClient, log: (message: string) => void): Promise<void> {
  for (const { resource, shared } of DERIVED) {
    const objects = (await listAll(client, resource)).filter((object) => !shared || isWeirs(object));
    await each(objects, ({ metadata: { name, namespace, uid } }) =>
      absentIsNothing(client.delete(resource, name, namespace, uid === undefined ? {} : { uid })),
    );
    if (objects.length > 0) log(`deleted ${objects.length} ${resource.plural}`);
  }
}

/**
 * Takes Weir's conditions and counts out of the status of every CNP and CCNP, which would go on claiming enforcement.
 * A status that others write meanwhile is read again while `mayRetry` says so. Throws ApiError, UninstallError.
 */
export async function withdrawStatuses(
  client: KubeClient,
  log: (message: string) => void,
  mayRetry: () => boolean,
): Promise<void> {
  for (const resource of [resources.CiliumNetworkPolicy, resources.CiliumClusterwideNetworkPolicy]) {
    let withdrawn = 0;
    for (;;) {
      const conflicts: string[] = [];
      const cleared = (await listAll(client, resource)).map(withoutDepths).flatMap((object) => {
        const left = withoutOurs(object);
        return left === object ? [] : [left];
      });
      await each(cleared, async (object) => {
        try {
          await absentIsNothing(client.replace(resource, object, { subresource: 'status' }));
          withdrawn += 1;
        } catch (error) {
          if (!(error instanceof ApiError && error.conflict)) throw error;
          conflicts.push(object.metadata.name);
        }
      });
      if (conflicts.length === 0) break;
      if (!mayRetry()) {
        throw new UninstallError(
          `the status of ${resource.plural} ${conflicts.join(', ')} still carries Weir's conditions: somebody else writes it all the time; run uninstall again`,
        );
      }
    }
    if (withdrawn > 0) log(`took Weir's conditions from ${withdrawn} ${resource.plural}`);
  }
}

/** What `request` gives; undefined when the object, or its kind, is not there. */
export async function absentIsNothing<T>(request: Promise<T>): Promise<T | undefined> {
  try {
    return await request;
  } catch (error) {
    if (error instanceof ApiError && error.notFound) return undefined;
    throw error;
  }
}

/** By who has written it: Cilium may have come to this cluster since. */
function isWeirs({ metadata }: KubeObject): boolean {
  const { managedFields = [] } = metadata as { readonly managedFields?: readonly { readonly manager?: string }[] };
  return managedFields.some(({ manager }) => manager === 'weir-operator' || manager === 'weir-agent');
}

/**
 * The policy with that alone in its status which is not Weir's: others may have written anything there. The same object where nothing is
 * Weir's. Recurses as deep as the object is.
 */
const withoutOurs = produce((policy: Draft<CiliumPolicyObject>): void => {
  const { status } = policy as { status?: Partial<Draft<PolicyStatus>> };
  if (status === undefined) return;
  const { conditions = [] } = status;
  const foreign = conditions.filter(({ type }) => !CONDITIONS.has(type));
  const fields = FIELDS.filter((field) => field in status);
  if (fields.length === 0 && foreign.length === conditions.length) return;
  for (const field of fields) delete status[field];
  if (foreign.length === 0) delete status.conditions;
  else status.conditions = foreign;
  if (Object.keys(status).length === 0) delete policy.status;
});

async function listAll<T extends KubeObject>(client: KubeClient, resource: Resource<T>): Promise<T[]> {
  const items: T[] = [];
  let continueToken: string | undefined;
  do {
    const page = await absentIsNothing(
      client.listPage(resource, { limit: PAGE, ...(continueToken === undefined ? {} : { continueToken }) }),
    );
    items.push(...(page?.items ?? []));
    continueToken = page?.continueToken;
  } while (continueToken !== undefined);
  return items;
}

async function each<T>(items: readonly T[], act: (item: T) => Promise<unknown>): Promise<void> {
  const queue = items.values();
  const work = async (): Promise<void> => {
    for (const item of queue) await act(item);
  };
  await Promise.all(Array.from({ length: CONCURRENCY }, work));
}
