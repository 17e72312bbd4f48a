/** An endpoint of which nobody has said yet whose it is (`reserved:init`): closed, but for what clusterwide policies let such endpoints do. */
import { expect, it } from '@jest/globals';
import { RESERVED_ID } from '@weir/identity';
import { type Direction, parsePolicy, resolve, rowsOfIdentity } from '@weir/policy';
import { World } from './testing/model-world.ts';

const INIT = { 'reserved:init': '' };

/** Verdicts of the endpoint for flows to the world and from pods. */
function verdicts(world: World): readonly (string | undefined)[] {
  const state = world.states.get(1);
  const compiled = world.slots.get(state?.slot ?? 0)?.compiled;
  const verdict = (direction: Direction, identity: number): string | undefined => {
    if (state?.enforced[direction] !== true) return 'open';
    const rows = compiled === undefined ? [] : rowsOfIdentity(compiled[direction], identity);
    return rows.find(({ protocol, from }) => protocol === 6 && from === 0)?.verdict ?? 'deny';
  };
  return [verdict('egress', RESERVED_ID.world), verdict('ingress', 256)];
}

it('is closed in both directions, and opened by what selects it alone', async () => {
  const world = new World();
  world.endpoint(1);
  await world.plan();
  expect(world.states.get(1)?.identity).toBe(RESERVED_ID.init);
  expect(verdicts(world)).toEqual(['deny', 'deny']);

  const spec = { endpointSelector: { matchLabels: INIT }, egress: [{ toEntities: ['world'] }] };
  const everybody = { endpointSelector: { matchLabels: { app: 'x' } }, ingress: [{ fromEntities: ['all'] }] };
  const { rules, problems } = parsePolicy(
    { metadata: { name: 'p' }, specs: [spec, everybody] },
    'CiliumClusterwideNetworkPolicy',
  );
  expect(problems).toEqual([]);
  const { rules: resolved, selectors } = resolve(rules, { cookieOf: () => 7 });
  const { db, tables } = world;
  db.write([tables.peerSets], (txn) => {
    for (const [hash, selector] of selectors)
      txn.upsert(tables.peerSets, { hash, selector, identities: [], origin: 'cluster' });
  });
  world.policy('p', 1, resolved);
  await world.plan();
  expect(verdicts(world)).toEqual(['allow', 'deny']);
});
