/** Changes of a world's inputs at random, of every kind. */
import fc from 'fast-check';
import { tableKey } from '../../create-tables.ts';
import { APPS, byName, rule, type World, web, ZONE } from './model-world.ts';

const app = fc.constantFrom(...APPS);
const ports = fc.array(fc.constantFrom(web(80), web(81), { ...web(53), protocol: 'UDP' as const }), {
  maxLength: 2,
});
/** One change of the inputs. */
export const change = fc.oneof(
  fc.record({
    kind: fc.constant('policy-by-name' as const),
    uid: fc.constantFrom('p', 'q'),
    verdict: fc.constantFrom('allow' as const, 'deny' as const),
    direction: fc.constantFrom('ingress' as const, 'egress' as const),
    peer: fc.option(app, { nil: undefined }),
  }),
  fc.record({
    kind: fc.constant('policy' as const),
    uid: fc.constantFrom('p', 'q'),
    subject: app,
    peer: fc.oneof(app, fc.constantFrom({ cidr: '10.0.0.0/8' }, { cidr: '10.9.9.0/24' }, ZONE)),
  }),
  fc.record({ kind: fc.constant('drop-policy' as const), uid: fc.constantFrom('p', 'q') }),
  fc.record({ kind: fc.constant('peer-set' as const), app, members: fc.subarray([256, 257, 258]) }),
  fc.record({ kind: fc.constant('drop-peer-set' as const), app }),
  fc.record({ kind: fc.constant('identity' as const), index: fc.nat(2), app }),
  fc.record({ kind: fc.constant('drop-identity' as const), index: fc.nat(2) }),
  fc.record({
    kind: fc.constant('remote' as const),
    name: fc.constantFrom('r', 's'),
    host: fc.nat(3),
    index: fc.nat(2),
    ports,
  }),
  fc.record({ kind: fc.constant('drop-remote' as const), name: fc.constantFrom('r', 's') }),
  fc.record({ kind: fc.constant('pod-endpoint' as const), id: fc.integer({ min: 1, max: 2 }), app, ports }),
  fc.record({ kind: fc.constant('label-endpoint' as const), id: fc.integer({ min: 1, max: 2 }), app }),
  fc.record({ kind: fc.constant('drop-endpoint' as const), id: fc.integer({ min: 1, max: 2 }) }),
  fc.record({
    kind: fc.constant('node' as const),
    name: fc.constantFrom('self', 'n2', 'n3'),
    cidr: fc.boolean(),
    apiserver: fc.boolean(),
    // Of pods, and of API servers.
    reported: fc.subarray(['10.9.9.0', '10.9.9.1']),
    zone: fc.constantFrom('a', 'b'),
  }),
  fc.record({ kind: fc.constant('drop-node' as const), name: fc.constantFrom('n2', 'n3') }),
  fc.record({ kind: fc.constant('apiserver' as const), host: fc.nat(3) }),
);

export type Change = typeof change extends fc.Arbitrary<infer C> ? C : never;

let generation = 0;

export function take(world: World, change: Change): void {
  const { db, tables } = world;
  switch (change.kind) {
    case 'policy':
      generation += 1;
      world.policy(change.uid, generation, [rule(change.subject, change.peer, 1 + (generation % 3))]);
      break;
    case 'policy-by-name':
      generation += 1;
      world.policy(change.uid, generation, [
        byName(change.verdict, change.direction, change.peer),
        { ...rule('a', 'c', 9), direction: change.direction },
      ]);
      break;
    case 'drop-policy':
      db.write([tables.policies], (txn) => txn.delete(tables.policies, change.uid));
      break;
    case 'peer-set':
      world.peerSet(change.app, change.members);
      break;
    case 'drop-peer-set':
      db.write([tables.peerSets], (txn) => txn.delete(tables.peerSets, `hash-${change.app}`));
      break;
    case 'identity':
      world.identity(256 + change.index, change.app);
      break;
    case 'drop-identity':
      db.write([tables.identities], (txn) => txn.delete(tables.identities, tableKey.identity(256 + change.index)));
      break;
    case 'remote':
      world.remote(change.name, `10.9.9.${change.host}`, 256 + change.index, change.ports);
      break;
    case 'drop-remote':
      db.write([tables.remoteEndpoints], (txn) => txn.delete(tables.remoteEndpoints, `ns/${change.name}`));
      break;
    case 'pod-endpoint':
      world.namespace();
      world.pod(`w${change.id}`, change.app, change.ports);
      world.endpoint(change.id, { pod: { namespace: 'ns', name: `w${change.id}` } });
      break;
    case 'label-endpoint':
      world.endpoint(change.id, { labels: { 'k8s:app': change.app } });
      break;
    case 'drop-endpoint':
      db.write([tables.endpoints], (txn) => txn.delete(tables.endpoints, tableKey.endpoint(change.id)));
      break;
    case 'node':
      db.write([tables.nodes], (txn) =>
        txn.upsert(tables.nodes, {
          name: change.name,
          addresses: [`192.0.2.${['self', 'n2', 'n3'].indexOf(change.name) + 1}`, ...change.reported],
          podCidrs: change.cidr ? ['10.9.0.0/16'] : [],
          kubeApiserver: change.apiserver,
          labels: { zone: change.zone },
        }),
      );
      break;
    case 'drop-node':
      db.write([tables.nodes], (txn) => txn.delete(tables.nodes, change.name));
      break;
    case 'apiserver':
      db.write([tables.apiserverAddresses], (txn) =>
        txn.upsert(tables.apiserverAddresses, { address: `10.9.9.${change.host}` }),
      );
      break;
  }
}

const FURNITURE: readonly Change[] = [
  ...APPS.map((named, index) => ({ kind: 'identity' as const, index, app: named })),
  ...APPS.map((named, index) => ({ kind: 'peer-set' as const, app: named, members: [256 + index] })),
  { kind: 'policy-by-name', uid: 'p', verdict: 'allow', direction: 'ingress', peer: 'b' },
  { kind: 'pod-endpoint', id: 1, app: 'a', ports: [web(80)] },
];

/** Rules are in force at an endpoint from the beginning, be it by its own port names. */
export function furnish(world: World): void {
  for (const each of FURNITURE) take(world, each);
  world.zone();
}
