import { afterAll, beforeAll, beforeEach, describe, expect, it } from '@jest/globals';
import type { Realised } from '../core.ts';
import { VerifyLaterError } from '../errors.ts';
import type { EndpointStateRow, EnforcementFault, PolicyRow } from '../tables.ts';
import { core, healAgent, RULES, said, startAgent, states, stopAgent, weir } from '../testing/cli-agent.ts';

beforeAll(startAgent);
afterAll(stopAgent);
beforeEach(healAgent);

describe('weir', () => {
  it('shows status, and exits with 1 when the agent is not healthy', async () => {
    const good = await weir(['status']);
    expect([good.code, good.err]).toEqual([0, '']);
    expect(good.out).toMatch(/^Agent: +Ok +it does its work$/m);
    expect(good.out).toMatch(/^Endpoints: +1\/1 ready$/m);
    expect(good.out).toMatch(/^CNI: +Ok +installed$/m);
    expect(good.out).toMatch(/^Routing: +Ok +2 routes to other nodes$/m);
    expect(good.out).toMatch(/^IPAM: +IPv4: 1 allocated from 10\.1\.0\.0\/24$/m);
    said.resting = 'all others rest';
    expect((await weir(['status'])).out).toMatch(/^IPAM: +IPv4: 1 allocated from 10\.1\.0\.0\/24; all others rest$/m);
    said.resting = undefined;
    await core.upsertEndpoint({ id: 8, ifindex: 4, interfaceName: 'lxc8', addresses: ['192.0.2.8'], createdAt: '' });
    expect((await weir(['status'])).out).toMatch(/^IPAM: +IPv4: 1 allocated from 10\.1\.0\.0\/24; 1 from elsewhere$/m);
    await core.deleteEndpoint(8);
    // Another node's pods cannot be reached: said, but no reason to take this one out.
    said.routing = { ok: false, message: 'no route to the pods of node n2' };
    const apart = await weir(['status']);
    said.routing = { ok: true, message: '2 routes to other nodes' };
    expect(apart.code).toBe(0);
    expect(apart.out).toMatch(/^Agent: +Warning +no route to the pods of node n2$/m);
    expect(apart.out).toMatch(/^Routing: +Warning +no route to the pods of node n2$/m);
    const put = (state: EndpointStateRow): void => core.acknowledge(state);
    const [state] = states();
    if (state === undefined) throw new Error('there is no endpoint');
    put({ ...state, state: 'waiting-for-identity', reason: 'pod a/b was deleted' });
    expect((await weir(['status'])).out).toMatch(/^Endpoints: +0\/1 ready; endpoint 7: pod a\/b was deleted$/m);
    put(state);
    const fault = (row: EnforcementFault): void =>
      core.db.write([core.tables.enforcementFaults], (txn) => {
        txn.deleteAll(core.tables.enforcementFaults);
        txn.insert(core.tables.enforcementFaults, row);
      });
    const unready = async (): Promise<string | undefined> =>
      /; (endpoint .*)$/m.exec((await weir(['status'])).out)?.[1];
    fault({ part: 'endpoint', of: '7', problem: 'its programs are gone' });
    expect(await unready()).toBe('endpoint 7: its programs are gone');
    fault({ part: 'slot', of: '0', problem: 'it is gone' });
    expect(await unready()).toBe('endpoint 7: policy slot 0: it is gone');
    core.db.write([core.tables.enforcementFaults], (txn) => txn.deleteAll(core.tables.enforcementFaults));
    put({ ...state, reason: 'its labels wait' });
    expect((await weir(['endpoint', 'list'])).out).toMatch(/waiting-to-regenerate +default\/app1/);
    put(state);
    core.healthy = false;
    const bad = await weir(['status']);
    expect(bad.code).toBe(1);
    expect(bad.out).toMatch(/^Agent: +Failure +datapath: see below$/m);
  });

  it('marks a check that is to be looked at, though the agent is healthy', async () => {
    const health = core.health.bind(core);
    core.health = () => ({
      ok: true,
      checks: [{ name: 'labels', ok: true, warning: true, message: 'some have none' }],
    });
    try {
      const status = await weir(['status']);
      expect([status.code, status.out]).toEqual([0, expect.stringMatching(/^ {2}labels: +warning +some have none$/m)]);
    } finally {
      core.health = health;
    }
  });

  it('does not take rules or policies that are not known for none', async () => {
    core.waitingRules = { reason: 'ImportedRulesUnknown', message: 'nobody knows which' };
    try {
      for (const args of [[], ['rule/any']]) {
        const { code, out } = await weir(['policy', 'status', ...args]);
        expect([code, out]).toEqual([1, expect.stringMatching(/BareRules +- +\(unknown\) .*Failing/)]);
        expect(out).toContain('  ImportedRulesUnknown (generation 0): nobody knows which\n');
      }
      expect((await weir(['policy', 'status', 'cnp/default/absent'])).err).toContain('has reached this node');
    } finally {
      core.waitingRules = undefined;
    }
    expect((await weir(['policy', 'status'])).code).toBe(0);
    const { policies } = core.tables;
    const listed = core.db.initialiser(policies, 'ciliumnetworkpolicies');
    const early = await weir(['policy', 'status']);
    const asked = await weir(['policy', 'status', 'cnp/default/absent']);
    core.waitingRules = { reason: 'ImportedRulesUnknown', message: 'nobody knows which' };
    const both = await weir(['policy', 'status']);
    core.waitingRules = undefined;
    core.db.write([policies], (txn) => listed(txn));
    expect(asked).toMatchObject({ code: 1, err: expect.stringContaining('is not known yet') });
    expect([both.code, both.out]).toEqual([
      1,
      expect.stringMatching(/BareRules.*\n.*\n?.*CiliumNetworkPolicy +- +\(unknown\)/s),
    ]);
    expect(early).toMatchObject({
      code: 1,
      err: expect.stringContaining('which policies there are is not known yet: ciliumnetworkpolicies is not listed'),
    });
    expect((await weir(['policy', 'status'])).code).toBe(0);
  });

  it('prints aligned tables and JSON', async () => {
    const list = await weir(['endpoint', 'list']);
    expect(list.out).toBe(
      'ENDPOINT  INGRESS   EGRESS  IDENTITY  IPV4      IPV6  STATE  NAME          LABELS\n' +
        '7         enforced  open    1007      10.1.0.7  -     ready  default/app1  k8s:id=app1\n',
    );
    expect(JSON.parse((await weir(['endpoint', 'list', '-o', 'json'])).out)).toMatchObject([{ id: 7 }]);
    expect(JSON.parse((await weir(['endpoint', 'get', 'pod-name:default/app1'])).out)).toMatchObject({ id: 7 });
    expect(await weir(['endpoint', 'get', '8'])).toMatchObject({
      code: 1,
      err: expect.stringContaining('no endpoint 8 on this node'),
    });
    expect((await weir(['map', 'list'])).out).toContain('endpoints  hash  1        4096  /sys/fs/bpf/fake/endpoints');
    expect((await weir(['map', 'get', 'endpoints'])).out).toBe('KEY        VALUE\nifindex=7  id=1 identity=1001\n');
  });

  it('says what a comparison of the maps found, and ends with 1 where something differed', async () => {
    const compared = 'Compared programs, links, pins and map contents in 0.5 s';
    expect(await weir(['map', 'verify'])).toEqual({ code: 0, out: `Nothing differs. ${compared}\n`, err: '' });
    core.verification = {
      seconds: 0.5,
      mended: [{ part: 'slot', count: 2, last: 'policy slot 3: lost an element' }],
      faults: ['pins: not pinned: ct4'],
      left: 7,
    };
    expect(await weir(['map', 'verify'])).toEqual({
      code: 1,
      out:
        'restored: slot, 2 times, the last: policy slot 3: lost an element\n' +
        'DIFFERS: pins: not pinned: ct4\n' +
        `${compared}, except 7 entries that the kernel refused\n`,
      err: '',
    });
    const json = await weir(['map', 'verify', '-o', 'json']);
    expect([json.code, JSON.parse(json.out)]).toEqual([1, core.verification]);
    core.verify = () => Promise.reject(new VerifyLaterError());
    expect(await weir(['map', 'verify'])).toMatchObject({
      code: 1,
      err: expect.stringContaining('the agent has enforced nothing since it started'),
    });
  });

  it('shows the tables of the agent', async () => {
    const { out } = await weir(['table', 'list']);
    expect(out).toMatch(/^NAME +ROWS +REVISION +INDEXES +WAITS FOR +STREAMS \(LAG\)$/m);
    expect(out).toMatch(/^endpoints +1 +\d+ +ifindex,address,pod,found/m);
    expect(JSON.parse((await weir(['table', 'list', '-o', 'json'])).out)).toContainEqual(
      expect.objectContaining({ name: 'endpoints', rows: 1, pending: [], streams: [], deleteMarkers: 0, watches: 0 }),
    );
    const endpoints = await weir(['table', 'get', 'endpoints']);
    expect(endpoints).toMatchObject({ code: 0, err: '' });
    expect(endpoints.out).toMatch(/^id +ifindex +interfaceName +addresses /);
    expect(endpoints.out).toMatch(/^7 +3 +lxc7 +10\.1\.0\.7 +namespace=default,name=app1 /m);
    expect((await weir(['table', 'get', 'endpoints', '--limit', '0'])).out).toMatch(/and 1 more\n$/);
    const dumped = await weir(['table', 'get', 'endpoints', '-o', 'json']);
    expect(dumped).toMatchObject({ code: 0, err: '' });
    const [head, row] = dumped.out
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as object);
    expect(head).toMatchObject({ statedb: 1, table: 'endpoints', rows: 1 });
    expect(row).toMatchObject({ row: { id: 7, addresses: ['10.1.0.7'] } });
    const cut = await weir(['table', 'get', 'endpoints', '-o', 'json', '--limit', '0']);
    expect([cut.code, cut.out.trim().split('\n')]).toEqual([0, [expect.stringContaining('"table":"endpoints"')]]);
    expect(core.db.stats().snapshots).toBe(0);
  });

  it.each([
    [['table', 'get', 'nodez'], 1, 'no table "nodez"; there are: policies, '],
    [['table', 'get', 'endpoints', '-n', 'all'], 2, '--limit "all" is not a number of rows'],
  ])('%j says what is wrong', async (args, code, problem) => {
    expect(await weir(args)).toMatchObject({ code, err: expect.stringContaining(problem) });
  });

  it('imports, shows, waits for and deletes rules', async () => {
    expect(await weir(['policy', 'import', '-'], RULES)).toEqual({ code: 0, out: 'Revision: 2\n', err: '' });
    expect((await weir(['policy', 'get', 'unspec:name=l3-rule'])).out).toContain('"value": "l3-rule"');
    expect(await weir(['policy', 'wait', '2'])).toEqual({ code: 0, out: 'Revision: 2\n', err: '' });
    core.failing = ['endpoint 7: no slot'];
    expect(await weir(['policy', 'wait', '2'])).toMatchObject({
      code: 1,
      err: 'weir: not in the kernel for: endpoint 7: no slot\n',
    });
    const { files } = core;
    core.files = { ...files, unsaved: () => '/state/rules.json cannot be written (EROFS: read-only file system)' };
    expect(await weir(['policy', 'import', '-'], RULES)).toEqual({
      code: 0,
      out: 'Revision: 3\n',
      err: 'weir: warning: the change will not outlive a restart of the agent: /state/rules.json cannot be written (EROFS: read-only file system)\n',
    });
    core.files = files;
    expect(await weir(['policy', 'import', '-'], '[{}]')).toMatchObject({
      code: 1,
      err: expect.stringContaining('[0].endpointSelector: is missing'),
    });
    core.waitingRules = { reason: 'ImportedRulesUnknown', message: 'nobody knows which' };
    for (const args of [['get'], ['get', '-o', 'json'], ['delete', 'unspec:name=l3-rule'], ['wait', '1']])
      expect(await weir(['policy', ...args])).toEqual({ code: 1, out: '', err: 'weir: nobody knows which\n' });
    core.waitingRules = undefined;
    expect(await weir(['policy', 'delete', 'unspec:name=l3-rule'])).toEqual({ code: 0, out: 'Revision: 4\n', err: '' });
    expect(await weir(['policy', 'delete', 'unspec:name=l3-rule'])).toMatchObject({ code: 1 });
    expect(await weir(['policy', 'delete'])).toMatchObject({ code: 2, err: expect.stringContaining('--all') });
  });

  it("shows policies as this node's kernel has them", async () => {
    const policy = (uid: string, kind: PolicyRow['kind'], name: string, generation: number): PolicyRow => ({
      uid,
      kind,
      ...(kind === 'CiliumClusterwideNetworkPolicy' ? {} : { namespace: 'default' }),
      name,
      generation,
      rules: [],
    });
    core.db.write([core.tables.policies, core.tables.policyStatuses], (txn) => {
      txn.upsert(core.tables.policies, policy('a', 'CiliumNetworkPolicy', 'good', 3));
      txn.upsert(core.tables.policies, policy('b', 'CiliumClusterwideNetworkPolicy', 'none', 1));
      txn.upsert(core.tables.policies, policy('c', 'NetworkPolicy', 'web', 2));
      txn.upsert(core.tables.policyStatuses, {
        uid: 'c',
        status: {
          observedGeneration: 2,
          summary: { nodes: '0/1', endpoints: 1, rules: 1 },
          conditions: [
            {
              type: 'Programmed',
              status: 'False',
              reason: 'NodesPending',
              message: 'waiting for n1',
              observedGeneration: 2,
              lastTransitionTime: '2026-01-01T00:00:00Z',
            },
          ],
        },
      });
    });
    const realised = (generation: number, failures: Realised['failures'] = []): void => {
      core.inKernel = new Map([
        ['a', { generation: 3, endpoints: 2 }],
        ['c', { generation, endpoints: 1 }],
      ]);
      core.setRealised({ revision: core.policyRevision(), failures });
    };
    try {
      realised(1);
      const pending = await weir(['policy', 'status']);
      expect(pending).toEqual({
        code: 1,
        err: '',
        out:
          'KIND                            NAMESPACE  NAME  WANTED  KERNEL  ENDPOINTS  STATE\n' +
          'CiliumClusterwideNetworkPolicy  -          none  1       -       0          NoEndpoints\n' +
          'CiliumNetworkPolicy             default    good  3       3       2          Programmed\n' +
          'NetworkPolicy                   default    web   2       1       1          Pending\n' +
          '\nNetworkPolicy/default/web:\n  cluster: Programmed=False (NodesPending) waiting for n1\n',
      });
      realised(2);
      expect((await weir(['policy', 'status'])).code).toBe(0);
      realised(2, [{ uid: 'c', generation: 2, reason: 'KernelRefused', message: 'E2BIG' }]);
      const failing = await weir(['policy', 'status', 'netpol/default/web']);
      expect(failing.code).toBe(1);
      expect(failing.out).toContain('  KernelRefused (generation 2): E2BIG\n');
      const json = await weir(['policy', 'status', '--json', 'cnp/default/good']);
      expect([json.code, JSON.parse(json.out)]).toEqual([
        0,
        [expect.objectContaining({ name: 'good', wanted: 3, kernel: 3, state: 'Programmed', failures: [] })],
      ]);
      // What the agent has been told and not yet looked at may select anything.
      core.importRules(JSON.parse(RULES));
      expect((await weir(['policy', 'status', 'ccnp/none'])).out).toContain('Pending');
      for (const [ref, code, message] of [
        ['cnp/default/absent', 1, 'no CiliumNetworkPolicy default/absent has reached this node'],
        [
          'pod/default/x',
          2,
          '"pod" is no kind; KIND is one of CiliumNetworkPolicy (cnp), CiliumClusterwideNetworkPolicy (ccnp), NetworkPolicy (netpol or knp), ',
        ],
        [
          'default/good',
          2,
          '"default" is no kind; write KIND/default/good, such as cnp/default/good; KIND is one of CiliumNetworkPolicy',
        ],
        ['good', 2, '"good" is no kind; write KIND/NAMESPACE/good, such as cnp/default/good; KIND is one of'],
        ['ccnp/default/none', 2, 'is named CiliumClusterwideNetworkPolicy/NAME'],
      ] as const)
        expect(await weir(['policy', 'status', ref])).toMatchObject({ code, err: expect.stringContaining(message) });
    } finally {
      core.deleteRules([]);
      core.db.write([core.tables.policies, core.tables.policyStatuses], (txn) => {
        txn.deleteAll(core.tables.policies);
        txn.deleteAll(core.tables.policyStatuses);
      });
    }
  });

  it('explains a flow as the agent has it, and is loud where the kernel does something else', async () => {
    expect(await weir(['explain', 'world', 'default/app1', '80'])).toEqual({
      code: 0,
      out:
        'ALLOWED: entity/world -> pod/default/app1 TCP 80\n' +
        'ingress at default/app1: allowed, policies select the pod, and none of their rules allows it\n' +
        '  selects the pod: CiliumNetworkPolicy default/p spec.ingress[0], allow\n' +
        '  kernel: allowed (by a test packet)\n',
      err: '',
    });
    expect(await weir(['explain', 'node/n1', '10.1.0.7', '81/udp'])).toMatchObject({
      code: 1,
      out: expect.stringMatching(/^DENIED: node\/n1 -> address\/10\.1\.0\.7 UDP 81\n/),
      err: '',
    });
    expect(await weir(['explain', 'world', 'default/app1', '82'])).toMatchObject({
      code: 3,
      err: expect.stringMatching(
        /^weir: ingress at default\/app1: policies say denied, and the kernel says allowed: ask again/,
      ),
    });
    expect((await weir(['explain', 'world', 'default/app1'])).code).toBe(64);
  });

  it('without an answer about a flow ends with a code that no verdict has', async () => {
    expect(await weir(['explain', 'default/none', 'default/app1', '80'])).toEqual({
      code: 69,
      out: '',
      err: 'weir: this node knows no pod default/none\n',
    });
    expect((await weir(['explain', 'world', 'default/app1', 'none/TCP'])).code).toBe(64);
    const silent = await weir(['--socket', '/nowhere/weir.sock', 'explain', 'world', 'default/app1', '80']);
    expect(silent).toMatchObject({ code: 69, err: expect.stringMatching(/^weir: cannot reach the Weir agent at /) });
  });

  it('imports no object of Kubernetes', async () => {
    const knp = { apiVersion: 'networking.k8s.io/v1', kind: 'NetworkPolicy', metadata: { name: 'web' } };
    expect(await weir(['policy', 'import', '-'], JSON.stringify(knp))).toEqual({
      code: 1,
      out: '',
      err: 'weir: standard input holds a NetworkPolicy, and nothing was imported: apply it to the cluster (`kubectl apply -f`); bare rules have no kind\n',
    });
    expect(await weir(['policy', 'import', '-'], '{ [')).toMatchObject({
      code: 1,
      err: expect.stringMatching(/^weir: standard input cannot be read as YAML or JSON: /),
    });
  });
});
