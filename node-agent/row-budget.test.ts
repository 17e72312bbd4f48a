/** Policies that come to more rows than a slot has room for are refused, by name, and hold nobody else up. On the real kernel. */
import { afterEach, beforeEach, expect, it } from '@jest/globals';
import { MOST_ROWS, type ResolvedRule } from '@weir/policy';
import { eventually } from '../test/eventually.ts';
import type { PolicyStatusModel } from './api/models.ts';
import { Lab, type LabPod } from './datapath/testing/lab.ts';
import type { PolicyRow } from './tables.ts';
import { Faces, labelsOf } from './testing/faces.ts';

const HOSTILE = 3;
/** Of each kind: their product is more than there is room for. */
const RULES = 300;

let lab: Lab;
let server: LabPod;
let tenant: LabPod;
let node: Faces;

beforeEach(async () => {
  lab = new Lab();
  server = await lab.pod('s');
  tenant = await lab.pod('t');
  node = await Faces.start(lab, server);
  await node.core.upsertEndpoint(node.endpoint());
  await node.core.upsertEndpoint(tenant.endpoint(HOSTILE, labelsOf('client')));
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

/** Rules by CIDR beside rules for everybody, each with a port of its own; of the latter one is the port that pods answer at. */
function square(count: number): ResolvedRule[] {
  return Array.from({ length: count }, (_, at) => [
    rule('client', 1 + at, { peers: [{ cidr: `198.51.${100 + (at >> 8)}.${at & 255}/32` }], ...udp(20_000 + at) }),
    rule('client', 10_001 + at, udp(7777 + at)),
  ]).flat();
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

it('the rules before stay, the status says why, and edits of others are carried out', async () => {
  node.edit(policy('q', 1, [rule('client', 1, { peers: [] })]));
  expect(await status('q', ({ state }) => state === 'Programmed')).toMatchObject({ kernel: 1 });
  expect(await server.reaches(tenant)).toBe(false);

  node.edit(policy('q', 2, square(RULES)));
  const refused = await status('q', ({ state }) => state === 'Failing');
  expect(refused).toMatchObject({ wanted: 2, kernel: 1, failures: [{ generation: 2, reason: 'RowBudgetExceeded' }] });
  expect(refused.failures[0]?.message).toMatch(
    new RegExp(
      `^endpoint ${HOSTILE}, selected by cnp/default/q \\(${2 * RULES} rules\\): ingress needs more than ${MOST_ROWS} rows .*; put peers .*; the policy before stays enforced$`,
    ),
  );
  expect((await node.weir('policy', 'status')).text).toContain('RowBudgetExceeded (generation 2): endpoint');
  expect(await server.reaches(tenant)).toBe(false);

  // Somebody else's: until now only clients were let in, at other ports.
  expect(await tenant.reaches(server)).toBe(false);
  node.edit(policy('p', 2, [rule('server', 7, udp(7777))]));
  expect(await status('p', ({ kernel }) => kernel === 2)).toMatchObject({ state: 'Programmed', failures: [] });
  expect(await tenant.reaches(server)).toBe(true);
  expect(await server.reaches(tenant)).toBe(false);

  node.edit(policy('q', 3, square(RULES / 3)));
  expect(await status('q', ({ kernel }) => kernel === 3)).toMatchObject({ state: 'Programmed', failures: [] });
  expect(await server.reaches(tenant)).toBe(true);
});

it('a pod that comes with them stays closed, and each policy that selects it says so', async () => {
  const late = await lab.pod('l');
  node.edit(policy('q', 1, square(RULES)));
  node.edit(policy('r', 1, [rule('client', 20_001, udp(9))]));
  await status('q', ({ state }) => state === 'Failing');
  // Each of its CNI requests is told the same, once the rules have been compiled.
  const endpoint = late.endpoint(4, labelsOf('client'));
  const refusal = () => node.core.upsertEndpoint(endpoint, { timeoutMs: 200 }).then(String, String);
  const rows = `ingress needs more than ${MOST_ROWS} rows`;
  expect(await eventually(refusal, (text) => text.includes(rows))).toContain(rows);
  const { failures } = await status('r', ({ state }) => state === 'Failing');
  const [said] = failures.filter(({ message }) => message.startsWith('endpoint 3'));
  expect(said?.message).toContain(
    `selected by cnp/default/q (${2 * RULES} rules), cnp/default/r (1 rule): ingress needs`,
  );
  // The request may have given up before the kernel had closed it.
  await eventually(
    () => server.reaches(late),
    (reached) => !reached,
  );
  expect(await server.reaches(late)).toBe(false);
});
