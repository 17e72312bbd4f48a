/** `weir policy validate`, as its users see it. */
import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { parseDocuments } from './documents.ts';
import { runCli } from './program.ts';
import { exitCodeOf, validateFiles } from './validate.ts';

let folder = '';
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'weir-validate-'));
});
afterAll(() => rm(folder, { recursive: true }));

async function weir(...args: readonly string[]): Promise<{ code: number; out: string; err: string }> {
  let [out, err] = ['', ''];
  const code = await runCli({
    args: ['policy', 'validate', ...args],
    version: '9.9.9',
    out: { write: (text) => (out += text) },
    err: { write: (text) => (err += text) },
    signal: new AbortController().signal,
  });
  return { code, out: out.replaceAll(folder, ''), err: err.replaceAll(folder, '') };
}

async function file(name: string, text: string): Promise<string> {
  const path = join(folder, name);
  await writeFile(path, text);
  return path;
}

const cnp = (name: string, spec: string) =>
  `apiVersion: cilium.io/v2\nkind: CiliumNetworkPolicy\nmetadata: {name: ${name}, namespace: default}\nspec: ${spec}\n`;
const GOOD = cnp('good', '{endpointSelector: {}, ingress: [{fromEndpoints: [{}]}]}');
/** `line:column severity path`. */
const found = (text: string) => {
  const { findings } = validateFiles([{ name: 'f', documents: parseDocuments(text, 'f') }]);
  return findings.map(({ line, column, severity, path, code }) => `${line}:${column} ${severity} ${code} ${path}`);
};

describe('exit codes', () => {
  const FOUR = cnp('four', '{endpointSelector: {}, egress: [{toEntities: [world-ipv4]}]}');
  it.each([
    [[], 2, 'it is not known of how many this one is'],
    [['--no-dual-stack'], 2, 'in a cluster of one family of addresses: write the CIDR 0.0.0.0/0'],
    [['--dual-stack'], 0, '1 valid'],
  ])('of a word that depends on the families of the cluster: %j', async (options, code, text) => {
    const result = await weir(...options, await file('four.yaml', FOUR));
    expect([result.code, result.out]).toEqual([code, expect.stringContaining(text)]);
  });

  const L7 = cnp('l7', '{endpointSelector: {}, egress: [{toGroups: [{aws: {}}]}]}');
  it.each([
    [0, GOOD],
    [0, cnp('w', '{endpointSelector: {}, egress: [{toPorts: [{ports: [{port: "80", endPort: 70}]}]}]}')],
    [2, L7],
    [1, `${L7}---\n${cnp('bad', '{endpointSelector: {}, ingress: [{bogus: 1}]}')}`],
    [1, 'a: [1'],
    [0, 'apiVersion: v1\nkind: Pod\nmetadata: {name: "no, name"}\n'],
  ])('%i', async (code, text) => {
    expect(await weir(await file('codes.yaml', text))).toMatchObject({ code, err: '' });
  });

  it('64 for wrong arguments, 66 for what cannot be read, though others are judged', async () => {
    expect((await weir()).code).toBe(64);
    expect((await weir('--bogus')).code).toBe(64);
    expect((await weir('-n', 'No_Name', await file('good.yaml', GOOD))).code).toBe(64);
    const bad = await file('bad.yaml', cnp('bad', '{endpointSelector: {}, ingress: [{bogus: 1}]}'));
    const { code, out, err } = await weir(bad, join(folder, 'none'));
    expect(code).toBe(66);
    expect(out).toMatch(/^\/bad\.yaml:4:41: error: spec\.ingress\[0\]\.bogus: unknown field /);
    expect(err).toMatch(/^weir: cannot read \/none: ENOENT/);
  });

  it('sarif is for validate only', async () => {
    const err: string[] = [];
    const code = await runCli({
      args: ['status', '-o', 'sarif'],
      version: '1',
      out: { write: () => undefined },
      err: { write: (text) => err.push(text) },
      signal: new AbortController().signal,
    });
    expect([code, err.join('')]).toEqual([2, 'weir: --output sarif is for `policy validate` only\n']);
  });
});

describe('places', () => {
  it('line and column of the field in YAML, of any document of the file', () => {
    const text = `${GOOD}---
# a comment
apiVersion: cilium.io/v2
kind: CiliumNetworkPolicy
metadata:
  name: bad
spec:
  endpointSelector: {}
  ingress:
    - toPorts:
        - ports:
            - {port: "010", protocol: TCP}
            - protocol: TCP
              port: 'x y'
      "bogus field": 1
`;
    expect(found(text).sort()).toEqual([
      '16:16 error InvalidSpec spec.ingress[0].toPorts[0].ports[0].port',
      '18:15 error InvalidSpec spec.ingress[0].toPorts[0].ports[1].port',
      '19:7 error InvalidSpec spec.ingress[0]["bogus field"]',
    ]);
  });

  it('in JSON, and in items of a List', () => {
    const policy = { apiVersion: 'cilium.io/v2', kind: 'CiliumNetworkPolicy', metadata: { name: 'p' } };
    const spec = { endpointSelector: {}, ingress: [{ bogus: 1 }] };
    const text = JSON.stringify(
      { kind: 'List', apiVersion: 'v1', items: [{ kind: 'Pod' }, { ...policy, spec }] },
      null,
      2,
    );
    const line = text.split('\n').findIndex((each) => each.includes('bogus')) + 1;
    expect(found(text)).toEqual(['5:5 note OtherKind ', `${line}:13 error InvalidSpec spec.ingress[0].bogus`]);
  });

  it('what is absent is told at what should have it', () => {
    expect(found('apiVersion: cilium.io/v2\nkind: CiliumNetworkPolicy\nmetadata:\n  namespace: a\n')).toEqual([
      '3:1 error InvalidSpec metadata.name',
      '1:1 error InvalidSpec spec',
    ]);
  });

  it('of what is no YAML, beside files that are', async () => {
    const broken = await file('broken.yaml', 'a: 1\nb: "\\q"\n');
    const { code, out } = await weir(broken, await file('good.yaml', GOOD));
    expect(code).toBe(1);
    expect(out).toMatch(
      /^\/broken\.yaml:2:\d: error: cannot be read as YAML or JSON: .*\[InvalidYaml\]\n1 judged: 1 valid/,
    );
  });

  it('an alias has the place where it stands', () => {
    const text = `apiVersion: cilium.io/v2
kind: CiliumNetworkPolicy
metadata: {name: p, namespace: a, annotations: {k: &a x}}
spec: {endpointSelector: {}, ingress: [{fromCIDR: [
  *a]}]}
`;
    expect(found(text)).toEqual(['5:3 error InvalidSpec spec.ingress[0].fromCIDR[0]']);
  });
});

describe('YAML is read as kubectl reads it', () => {
  const labels = (value: string) =>
    found(`apiVersion: cilium.io/v2
kind: CiliumNetworkPolicy
metadata: {name: p, namespace: a, labels: {app: ${value}}}
spec: {endpointSelector: {}, ingress: [{}]}
`);
  it.each(['no', 'Off', 'y', '010', '1_000', '0x1f', '1e3', '~'])('%s is no text', (value) => {
    expect(labels(value)).toEqual(['3:44 error InvalidMetadata metadata.labels.app']);
  });
  it.each(['"no"', 'nope', '2026-01-01', "'010'", 'yes1'])('%s is one', (value) => {
    expect(labels(value)).toEqual([]);
  });
  it('a field that is there twice is refused', () => {
    expect(() => parseDocuments('a: 1\na: 2', 'f')).toThrow(/duplicated mapping key/);
  });
  it('<< merges', () => {
    expect(parseDocuments('a: &x {b: 1}\nc: {<<: *x, d: 2}', 'f')[0]?.value).toEqual({
      a: { b: 1 },
      c: { b: 1, d: 2 },
    });
  });
});

describe('what is judged', () => {
  it.each([
    ['CiliumNetworkPolcy', 'cilium.io/v2', 'CiliumNetworkPolicy'],
    ['ciliumNetworkPolicy', 'cilium.io/v2', 'CiliumNetworkPolicy'],
    ['NetworkPolice', 'networking.k8s.io/v1', 'NetworkPolicy'],
  ])('a misspelt kind is not skipped: %s', (kind, apiVersion, meant) => {
    const { findings } = validateFiles([
      { name: 'f', documents: parseDocuments(JSON.stringify({ apiVersion, kind }), 'f') },
    ]);
    expect(findings).toMatchObject([{ severity: 'error', message: expect.stringContaining(`did you mean ${meant}?`) }]);
  });

  it.each([
    ['of another group', 'apiVersion: crd.example.org/v1\nkind: NetworkPolicy\n'],
    ['of another kind of the group', 'apiVersion: cilium.io/v2\nkind: CiliumNode\n'],
    ['values of a chart', 'replicas: 1\n'],
    ['a list of other things', '[1, {a: 2}]'],
  ])('skipped: %s', (_, text) => {
    expect(found(text)).toEqual(['1:1 note OtherKind ']);
  });

  it('a policy without a kind, or without metadata, is not skipped', () => {
    expect(found('spec: {endpointSelector: {}, ingress: [{}]}')).toEqual(['1:1 error InvalidSpec kind']);
    expect(found('specs: [{endpointSelector: {}, ingress: [{}]}]')).toEqual(['1:1 error InvalidSpec kind']);
    expect(
      found('apiVersion: cilium.io/v2\nkind: CiliumNetworkPolicy\nspec: {endpointSelector: {}, ingress: [{}]}'),
    ).toEqual(['1:1 error InvalidSpec metadata.name']);
  });

  it('a policy without apiVersion is refused by kubectl', () => {
    expect(
      found('kind: CiliumNetworkPolicy\nmetadata: {name: p}\nspec: {endpointSelector: {}, ingress: [{}]}'),
    ).toEqual(['1:1 error InvalidSpec apiVersion']);
  });

  it('bare rules', () => {
    expect(found('[{endpointSelector: {}, ingress: [{bogus: 1}]}]')).toEqual([
      '1:36 error InvalidSpec [0].ingress[0].bogus',
    ]);
  });

  it('CiliumCIDRGroup', () => {
    const group = (spec: string) =>
      found(`apiVersion: cilium.io/v2\nkind: CiliumCIDRGroup\nmetadata: {name: g}\nspec: ${spec}\n`);
    expect(group('{externalCIDRs: [10.0.0.0/8, "fd00::/8"]}')).toEqual([]);
    expect(group('{externalCIDRs: []}')).toEqual([]);
    expect(group('{externalCIDRs: [10.0.0.0/8, 10.1.2.3, 010.0.0.0/8], more: 1}')).toEqual([
      '4:60 error InvalidSpec spec.more',
      '4:36 error InvalidSpec spec.externalCIDRs[1]',
      '4:46 error InvalidSpec spec.externalCIDRs[2]',
    ]);
    expect(group('{}')).toEqual(['4:1 error InvalidSpec spec.externalCIDRs']);
  });
});

describe('metadata', () => {
  const metadata = (text: string) =>
    found(
      `apiVersion: cilium.io/v2\nkind: CiliumNetworkPolicy\nmetadata: ${text}\nspec: {endpointSelector: {}, ingress: [{}]}\n`,
    ).map((each) => each.split(' ').slice(2).join(' '));
  it.each([
    ['{name: Web}', ['InvalidMetadata metadata.name']],
    [`{name: ${'a'.repeat(254)}}`, ['InvalidMetadata metadata.name']],
    ['{name: a.b-c.d}', []],
    ['{name: a..b}', ['InvalidMetadata metadata.name']],
    ['{name: p, namespace: a.b}', ['InvalidMetadata metadata.namespace']],
    [`{name: p, namespace: ${'a'.repeat(64)}}`, ['InvalidMetadata metadata.namespace']],
    ['{name: p, labels: {a/b/c: x}}', ['InvalidMetadata metadata.labels["a/b/c"]']],
    ['{name: p, labels: {a: -x}}', ['InvalidMetadata metadata.labels.a']],
    ['{name: p, labels: {a: 1}}', ['InvalidMetadata metadata.labels.a']],
    ['{name: p, annotations: {Example.org/a: "any text, \\n"}}', []],
    ['{name: p, annotations: {"a b": x}}', ['InvalidMetadata metadata.annotations["a b"]']],
    ['{name: p, Namespace: x}', ['InvalidMetadata metadata.Namespace']],
  ])('%s', (text, problems) => {
    expect(metadata(text)).toEqual(problems);
  });
  it('annotations have a limit', () => {
    expect(metadata(`{name: p, annotations: {a: ${'x'.repeat(262_144)}}}`)).toEqual([
      'InvalidMetadata metadata.annotations',
    ]);
  });
});

describe('many files', () => {
  it('folders are read to their ends, and nothing hidden; a name that two files have is told', async () => {
    const top = join(folder, 'tree');
    await mkdir(join(top, 'deep', '.git'), { recursive: true });
    await file('tree/b.yaml', GOOD);
    await file('tree/deep/a.json', JSON.stringify({ kind: 'Pod' }));
    await file('tree/deep/c.yml', GOOD);
    await file('tree/deep/d.txt', 'a: [');
    await file('tree/deep/.git/e.yaml', 'a: [');
    await symlink(top, join(top, 'deep', 'loop'));
    const { code, out } = await weir(top, join(top, 'b.yaml'));
    expect(out).toBe(
      '/tree/deep/a.json:1:1: note: skipped: "Pod" is no policy [OtherKind]\n' +
        '/tree/deep/c.yml:3:12: warning: metadata.name: CiliumNetworkPolicy default/good is already at /tree/b.yaml:1: of two objects of one name the ' +
        'last that is applied replaces the other [CiliumNetworkPolicy default/good, DuplicateName]\n' +
        '2 judged: 2 valid, 0 invalid, 0 not fully enforced, 1 of other kinds skipped\n',
    );
    expect(code).toBe(0);
  });

  it('in one file a name that is there twice is an error', () => {
    expect(found(`${GOOD}---\n${GOOD}`)).toEqual(['8:12 error DuplicateName metadata.name']);
    expect(found(`${GOOD}---\n${GOOD.replace('namespace: default', 'namespace: other')}`)).toEqual([]);
  });
});

describe('formats', () => {
  it('JSON', async () => {
    const { out } = await weir('-o', 'json', await file('one.yaml', GOOD));
    expect(JSON.parse(out)).toMatchObject({
      objects: [{ line: 1, name: 'CiliumNetworkPolicy default/good', valid: true, reason: 'Valid', rules: 1 }],
      findings: [],
    });
  });

  it('SARIF', async () => {
    const { code, out } = await weir(
      '-o',
      'sarif',
      await file('a b.yaml', cnp('p', '{endpointSelector: {}, ingress: [{bogus: 1}]}')),
    );
    expect(code).toBe(1);
    const log = JSON.parse(out) as { runs: [{ tool: { driver: { rules: { id: string }[] } }; results: object[] }] };
    const [{ tool, results }] = log.runs;
    expect(log).toMatchObject({ version: '2.1.0', runs: [{ columnKind: 'utf16CodeUnits' }] });
    expect(results).toEqual([
      {
        ruleId: 'InvalidSpec',
        ruleIndex: tool.driver.rules.findIndex(({ id }) => id === 'InvalidSpec'),
        level: 'error',
        message: { text: expect.stringMatching(/^spec\.ingress\[0\]\.bogus: unknown field/) },
        locations: [
          {
            physicalLocation: {
              artifactLocation: { uri: expect.stringMatching(/a%20b\.yaml$/) },
              region: { startLine: 4, startColumn: 41 },
            },
            logicalLocations: [{ fullyQualifiedName: 'CiliumNetworkPolicy default/p', kind: 'object' }],
          },
        ],
      },
    ]);
  });
});

describe('limits', () => {
  it('1 MB is judged in time that grows with its size alone: half a second without a test around it', () => {
    const element = (at: number) => `
  - fromEndpoints:
    - matchLabels: {app: api-${at}, "k8s:io.kubernetes.pod.namespace": backend}
    toPorts:
    - ports:
      - port: "8080"
        protocol: TCP
      - port: "8443"
        protocol: TCP`;
    let text = '';
    for (let at = 0; text.length < 1_000_000; at += 1)
      text += `---\n${cnp(`p${at}`, `\n  endpointSelector: {matchLabels: {app: web}}\n  ingress:${[0, 1, 2].map(element).join('')}\n    bogus: 1`)}`;
    const run = () => {
      const start = process.cpuUsage().user;
      const validation = validateFiles([{ name: 'f', documents: parseDocuments(text, 'f') }]);
      expect(exitCodeOf(validation)).toBe(1);
      expect(validation.findings.length).toBe(validation.objects.length);
      return (process.cpuUsage().user - start) / 1000;
    };
    expect(Math.min(run(), run(), run())).toBeLessThan(1_500);
  });

  it('those that the operator has of one policy', () => {
    const list = <T>(length: number, of: (at: number) => T): T[] => Array.from({ length }, (_, at) => of(at));
    const validated = (spec: object) => {
      const object = { apiVersion: 'cilium.io/v2', kind: 'CiliumNetworkPolicy', metadata: { name: 'p' }, spec };
      const { findings } = validateFiles([{ name: 'f', documents: parseDocuments(JSON.stringify(object), 'f') }]);
      return findings.map(({ code, message }) => `${code} ${message}`);
    };
    const app = (at: number) => ({ matchLabels: { app: `a${at}` } });
    const beyond = (needs: string) => [expect.stringMatching(`BudgetExceeded the policy needs ${needs}`)];
    const endpointSelector = {};
    expect(validated({ endpointSelector, ingress: list(5_001, () => ({})) })).toEqual(
      beyond('5001 rules, and one may need 5000'),
    );
    expect(validated({ endpointSelector, ingress: [{ fromEndpoints: list(1_000, app) }] })).toEqual(
      beyond('1001 selectors, and one may need 1000: .*--selectors-per-policy'),
    );
    expect(validated({ endpointSelector, ingress: [{ fromEndpoints: list(999, app) }] })).toEqual([]);
    const ports = (most: number) => [{ ports: list(most, (at) => ({ port: `${10_000 + 2 * at}`, protocol: 'TCP' })) }];
    expect(validated({ endpointSelector, ingress: list(2_000, () => ({ toPorts: ports(30) })) })).toEqual(
      beyond('.* entries in its lists .*: split it'),
    );
    expect(validated({ endpointSelector, ingress: list(4_000, () => ({ toPorts: ports(10) })) })).toEqual(
      beyond('.* bytes once it is resolved, .*: split it'),
    );
    const long = {
      matchExpressions: [{ key: 'a', operator: 'In', values: list(25_000, (at) => `${at}`.padEnd(60, 'v')) }],
    };
    expect(validated({ endpointSelector, egress: [{}, { toEndpoints: [long] }] })).toEqual([
      expect.stringMatching('BudgetExceeded a selector of spec.egress\\[1\\] needs .* bytes, .*with fewer values'),
    ]);
  });
});

describe('a rule by names', () => {
  const named = (name: string, selector: string, more = '') =>
    cnp(name, `{endpointSelector: ${selector}, egress: [{toFQDNs: [{matchName: a.example}]}${more}]}`);
  const asks =
    '{toEndpoints: [{}], toPorts: [{ports: [{port: "53", protocol: ANY}], rules: {dns: [{matchPattern: "*"}]}}]}';
  const WARNING = '4:40 warning Warning spec.egress[0].toFQDNs';

  it.each([
    ['no rule lets its pods ask', [named('names', '{}')], [WARNING]],
    ['a rule of its own does', [named('names', '{}', `, ${asks}`)], []],
    [
      'another policy may',
      [named('names', '{matchLabels: {a: b}}'), cnp('dns', `{endpointSelector: {}, egress: [${asks}]}`)],
      [],
    ],
    [
      'another policy is of other pods',
      [
        named('names', '{matchLabels: {a: b}}'),
        cnp('dns', `{endpointSelector: {matchLabels: {a: c}}, egress: [${asks}]}`),
      ],
      [WARNING.replace('4:40', '4:59')],
    ],
    [
      'another policy leaves its pods out',
      [
        named('names', '{matchLabels: {a: b}}'),
        cnp('dns', `{endpointSelector: {matchExpressions: [{key: a, operator: DoesNotExist}]}, egress: [${asks}]}`),
      ],
      [WARNING.replace('4:40', '4:59')],
    ],
    [
      'the other policy is of another namespace',
      [named('names', '{}'), cnp('dns', `{endpointSelector: {}, egress: [${asks}]}`).replace('default', 'other')],
      [WARNING],
    ],
  ])('is warned of, or not: %s', (_, policies, expected) => {
    expect(found(policies.join('---\n'))).toEqual(expected);
  });

  it('is valid all the same', async () => {
    expect(await weir(await file('named.yaml', named('names', '{}')))).toMatchObject({ code: 0, err: '' });
  });
});
