/** How much is looked at for the endpoints that somebody asks for. */
import { expect, it } from '@jest/globals';
import { createStateDB } from '@weir/statedb';
import type { Core } from '../core.ts';
import { createTables } from '../create-tables.ts';
import type { EndpointStateRow, SlotContent, VerdictBlock } from '../tables.ts';
import { endpointTexts, endpointViews, requireEndpoint } from './context.ts';
import { endpointHealth, endpointLabels, endpointLog } from './endpoint-model.ts';
import type { ApiOptions } from './types.ts';

const SLOT = 7;
const POLICY = { uid: 'u', kind: 'CiliumNetworkPolicy', namespace: 'n', name: 'p', generation: 1 };
const RULE = { cookie: 1, labels: ['unspec:team=red'] };
const LABELS = [
  ...['derived-from=CiliumNetworkPolicy', 'name=p', 'namespace=n', 'uid=u'].map(
    (text) => `k8s:io.cilium.k8s.policy.${text}`,
  ),
  'unspec:team=red',
];

/** Endpoints 1, 2 and 3 share a slot in the kernel. */
function agent(): { readonly options: ApiOptions; readonly expanded: () => number; readonly block: () => void } {
  let expanded = 0;
  const db = createStateDB();
  const tables = createTables(db);
  const block: VerdictBlock = { protocol: 6, port: 80, bits: 16, verdict: 'allow', cookie: 1 };
  const direction = new Map([[16, [block]]]);
  const content: SlotContent = {
    elements: { ingress: new Map([[300, 16]]), egress: new Map() },
    rows: { ingress: direction, egress: new Map() },
  };
  db.write([tables.endpoints, tables.kernelEndpoints], (txn) => {
    for (const id of [1, 2, 3]) {
      const common = { id, ifindex: id, addresses: [`10.0.0.${id}`] };
      const enforced = { ingress: true, egress: false };
      const more = {
        identity: 256,
        labels: {},
        slot: SLOT,
        enforced,
        revision: 1,
        policies: {},
        state: 'ready' as const,
      };
      const acknowledged: EndpointStateRow = { ...common, ...more };
      txn.insert(tables.endpoints, { ...common, interfaceName: `lxc${id}`, createdAt: '2026-01-01T00:00:00Z' });
      txn.insert(tables.kernelEndpoints, { id, ifindex: id, slot: SLOT, doubted: false, acknowledged });
    }
  });
  const core: Partial<Core> = {
    db,
    tables,
    policyRevision: () => 1,
    naming: { rulesOf: () => [[POLICY, RULE]] } as unknown as Core['naming'],
    realised: () => ({ settled: 1 }) as ReturnType<Core['realised']>,
    kernelSlot: (slot) => {
      expect(slot).toBe(SLOT);
      expanded += 1;
      return content;
    },
  };
  // The kernel has another row from now on.
  const blockAll = (): void => void direction.set(16, [{ ...block, verdict: 'deny' }]);
  return { options: { core } as ApiOptions, expanded: () => expanded, block: blockAll };
}

it('of one endpoint only its own slot, and that only where it is asked for', () => {
  const { options, expanded } = agent();
  const view = requireEndpoint(options, '2');
  expect([view.row.id, expanded()]).toEqual([2, 0]);
  expect(view.read()().status.policy.realized).toMatchObject({
    'allowed-ingress-identities': [300],
    'denied-ingress-identities': [],
    l4: {
      ingress: [{ rule: '{"port":80,"protocol":"TCP","verdict":"allow"}', 'derived-from-rules': [LABELS] }],
      egress: [],
    },
  });
  expect(expanded()).toBe(1);
});

it('of all endpoints each slot once, as it is when they are asked for, and each says what it says alone', async () => {
  const { options, expanded, block } = agent();
  const alone = ['1', '2', '3'].map((id) => requireEndpoint(options, id).read()());
  const before = expanded();
  const texts = endpointTexts(endpointViews(options));
  block();
  const models = (await texts).map((text) => JSON.parse(text));
  expect([models.length, expanded() - before]).toEqual([3, 1]);
  expect(models).toEqual(JSON.parse(JSON.stringify(alone)));
  for (const [at, model] of alone.entries()) {
    const { status } = requireEndpoint(options, String(at + 1));
    expect(endpointHealth(status)).toEqual(model.status.health);
    expect(endpointLog(status)).toEqual(model.status.log);
    expect(endpointLabels(status).status).toEqual(model.status.labels);
  }
});
