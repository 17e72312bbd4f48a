/** A direction whose policies come to more rows than it may have is closed, which is said, and holds nobody else's policy up. On the real kernel. */
import { afterEach, beforeEach, expect, it } from '@jest/globals';
import { labelsKey } from '@weir/labels';
import { MOST_ROWS, type ResolvedRule } from '@weir/policy';
import { eventually } from '../../test/eventually.ts';
import type { PolicyStatusModel } from '../api/models.ts';
import { Lab, type LabPod } from '../datapath/testing/lab.ts';
import type { PolicyRow } from '../tables.ts';
import { Faces, labelsOf } from '../testing/faces.ts';

const HOSTILE = 3;
/** Rules for every peer, and pods that rules tell apart: their product is more than there is room for. */
const PORTS = 1500;
const PEERS = 44;

let lab: Lab;
let server: LabPod;
let tenant: LabPod;
let other: LabPod;
let node: Faces;

beforeEach(async () => {
  lab = new Lab();
  server = await lab.pod('s');
  tenant = await lab.pod('t');
  node = await Faces.start(lab, server);
  await node.core.upsertEndpoint(node.endpoint());
  await node.core.upsertEndpoint(tenant.endpoint(HOSTILE, labelsOf('client')));
  other = await lab.pod('o');
  await node.core.upsertEndpoint(other.endpoint(4, labelsOf('other')));
});

afterEach(async () => {
  await node?.stop();
  lab.close();
});

const rule = (subject: string, cookie: number, fields: Partial<ResolvedRule>): ResolvedRule => ({
  subject,
  direction: 'ingress',
  verdict: 'allow',
  defaultDeny: true,
  cookie,
  path: `spec.ingress[${cookie}]`,
  ...fields,
});
const udp = (port: number): Pick<ResolvedRule, 'ports'> => ({ ports: [{ protocol: 'UDP', from: port, to: port }] });

function policy(name: string, generation: number, rules: readonly ResolvedRule[]): PolicyRow {
  return { uid: name, kind: 'CiliumNetworkPolicy', namespace: 'default', name, generation, rules };
}

/**
 * Rules for peers, each with a port of its own, beside rules for everybody, of which one is for the port that pods answer at.
 */
function square(ports: number): ResolvedRule[] {
  const { db, tables } = node.core;
  const apps = Array.from({ length: PEERS }, (_, at) => `app-${at}`);
  db.write([tables.identities, tables.peerSets], (txn) => {
    for (const [at, app] of apps.entries()) {
      const [id, labels] = [256 + at, labelsOf(app)];
      txn.upsert(tables.identities, { id, labels, labelsKey: labelsKey(labels) });
      const selector = { requirements: [{ key: 'k8s:app', operator: 'In' as const, values: [app] }] };
      txn.upsert(tables.peerSets, { hash: app, selector, identities: [id], origin: 'cluster' });
    }
  });
  return [
    ...[...apps, 'server'].map((peerSet, at) => rule('client', 1 + at, { peers: [{ peerSet }], ...udp(20_000 + at) })),
    ...Array.from({ length: ports }, (_, at) => rule('client', 10_001 + at, udp(7777 + at))),
  ];
}

async function status(name: string, check: (status: PolicyStatusModel) => boolean): Promise<PolicyStatusModel> {
  return eventually(
    async () => {
      const [found] = await node.get<readonly PolicyStatusModel[]>(`/policy/status?policy=cnp/default/${name}`);
      if (found === undefined) throw new Error(`no policy ${name}`);
      return found;
    },
    (found) => check(found),
  );
}

it('it is closed to everybody, the status says so, and policies of others count', async () => {
  node.edit(policy('q', 1, square(PORTS / 3)));
  expect(await status('q', ({ state }) => state === 'Programmed')).toMatchObject({ kernel: 1 });
  expect([await server.reaches(tenant), await other.reaches(tenant)]).toEqual([true, true]);

  node.edit(policy('q', 2, square(PORTS)));
  const over = await status('q', ({ state, kernel }) => state === 'Failing' && kernel === 2);
  expect(over).toMatchObject({ wanted: 2, failures: [{ generation: 2, reason: 'RowBudgetExceeded' }] });
  expect(over.failures[0]?.message).toMatch(
    new RegExp(
      `^endpoint ${HOSTILE}, selected by cnp/default/q \\(${PEERS + 1 + PORTS} rules\\): ingress needs more than ${MOST_ROWS} rows .*; ` +
        'put peers .*; the direction is closed$',
    ),
  );
  expect((await node.weir('policy', 'status')).text).toContain('RowBudgetExceeded (generation 2): endpoint');
  expect([await server.reaches(tenant), await other.reaches(tenant)]).toEqual([false, false]);

  // The tenant's egress goes on, and an edit reaches pods that are not the tenant's.
  expect(await tenant.reaches(server)).toBe(false);
  node.edit(policy('p', 2, [rule('server', 7, udp(7777))]));
  expect(await status('p', ({ kernel }) => kernel === 2)).toMatchObject({ state: 'Programmed', failures: [] });
  expect(await tenant.reaches(server)).toBe(true);

  node.edit(policy('q', 3, square(PORTS / 3)));
  expect(await status('q', ({ state }) => state === 'Programmed')).toMatchObject({ kernel: 3, failures: [] });
  expect([await server.reaches(tenant), await other.reaches(tenant)]).toEqual([true, true]);
});

it('a pod that comes with them is connected, and each policy with rules of that direction says so', async () => {
  const late = await lab.pod('l');
  node.edit(policy('q', 1, square(PORTS)));
  node.edit(policy('r', 1, [rule('client', 20_001, udp(9))]));
  node.edit(policy('s', 1, [rule('client', 20_002, { direction: 'egress' })]));
  await node.core.upsertEndpoint(late.endpoint(5, labelsOf('client')));
  const { failures } = await status('r', ({ state }) => state === 'Failing');
  const [said] = failures.filter(({ message }) => message.startsWith('endpoint 3'));
  expect(said?.message).toContain(
    `selected by cnp/default/q (${PEERS + 1 + PORTS} rules), cnp/default/r (1 rule): ingress needs`,
  );
  expect(await status('s', ({ state }) => state === 'Programmed')).toMatchObject({ failures: [] });
  expect([await server.reaches(late), await other.reaches(late)]).toEqual([false, false]);
});
