/**
 * The schema of policies beside their parser: what an API server refuses by the schema, the operator would refuse too. So a policy that is applied
 * unchanged from Cilium is never lost to a pattern.
 */
import { describe, expect, it } from '@jest/globals';
import { crds, resources } from '@weir/kube';
import { demandOf, demandProblem, parsePolicy } from '@weir/policy';
import fc from 'fast-check';
import { ENTITY_NAMES } from '../shared/kube/crds/rule-peers.ts';
import { ENTITIES } from '../shared/policy/parse-element.ts';
import { StatusError } from './cluster/apiserver/errors.ts';
import { createApiServer } from './cluster/apiserver/index.ts';
import type { JsonObject } from './cluster/apiserver/json.ts';
import { type Kind, world } from './policy-worlds.ts';

const { client } = createApiServer({ crds: crds() as JsonObject[] });

let made = 0;
function policy(kind: Kind, parts: object): JsonObject {
  made += 1;
  const metadata = { name: `p${made}`, ...(kind === 'CiliumNetworkPolicy' ? { namespace: 'default' } : {}) };
  // As it is sent: JSON.
  return JSON.parse(JSON.stringify({ apiVersion: 'cilium.io/v2', kind, metadata, ...parts })) as JsonObject;
}

/** Why the API server does not take it; undefined: it does. */
async function refusal(kind: Kind, object: JsonObject): Promise<string | undefined> {
  const { group, version, plural } = resources[kind];
  try {
    const namespace = kind === 'CiliumNetworkPolicy' ? { namespace: 'default' } : {};
    await client.create({ group, version, plural, ...namespace }, structuredClone(object));
    return undefined;
  } catch (error) {
    if (!(error instanceof StatusError) || error.httpStatus !== 422) throw error;
    return error.message;
  }
}

const isInvalid = (kind: Kind, object: object): boolean =>
  demandProblem(demandOf(object, kind), { rulesPerPolicy: 0, selectorsPerPolicy: 0 }) !== undefined ||
  parsePolicy(object, kind).problems.some(({ code }) => code === 'InvalidSpec');

describe('the schema of policies', () => {
  const judged = { both: 0, parserAlone: 0, neither: 0 };
  /** Words of policies that neither refuses. */
  const taken = new Set<string>();

  it('refuses nothing that the parser reads', async () => {
    await fc.assert(
      fc.asyncProperty(world, async ({ kind, parts }) => {
        const object = policy(kind, parts);
        const why = await refusal(kind, object);
        const invalid = isInvalid(kind, object);
        if (why !== undefined && !invalid) throw new Error(`the parser reads what is refused: ${why}`);
        judged[why !== undefined ? 'both' : invalid ? 'parserAlone' : 'neither'] += 1;
        if (!invalid) for (const [, word = ''] of JSON.stringify(object).matchAll(/"(\w+)":[^n]/g)) taken.add(word);
      }),
      { numRuns: 6000 },
    );
  }, 60_000);

  it('was asked about policies of each kind', () => {
    expect(judged.both).toBeGreaterThan(300);
    expect(judged.neither).toBeGreaterThan(1000);
    expect(judged.parserAlone).toBeGreaterThan(50);
    const asking = [
      'http',
      'dns',
      'l7proto',
      'serverNames',
      'terminatingTLS',
      'originatingTLS',
      'listener',
      'mismatch',
    ];
    const others = ['matchName', 'matchPattern', 'cidrGroupRef', 'cidrGroupSelector', 'toNodes', 'toServices', 'icmps'];
    expect([...asking, ...others].filter((word) => !taken.has(word))).toEqual([]);
  });

  it('knows the entities of the parser', () => {
    expect(ENTITY_NAMES).toEqual(ENTITIES);
  });

  const from = (member: object) => ({ endpointSelector: {}, ingress: [member] });
  const ports = (...items: object[]) => from({ toPorts: [{ ports: items }] });
  const asks = (parts: object) => ({
    endpointSelector: {},
    egress: [{ toPorts: [{ ports: [{ port: '80', protocol: 'TCP' }], ...parts }] }],
  });
  it.each<[string, object, string]>([
    ['no subject', { ingress: [{}] }, 'spec: Invalid value: "object": write endpointSelector'],
    ['a node as subject', { ...from({}), nodeSelector: {} }, 'nodeSelector is for a CiliumClusterwideNetworkPolicy'],
    ['no element', { endpointSelector: {}, ingress: [] }, 'spec: Invalid value: "object": write at least one element'],
    ['a port with a zero before it', ports({ port: '010' }), 'ports[0].port: Invalid value: "010"'],
    ['a port beyond the last', ports({ port: '65536' }), 'ports[0].port: Invalid value: "65536"'],
    ['a range in a text', ports({ port: '80-90' }), 'ports[0].port: Invalid value: "80-90"'],
    ['a last port beyond the last', ports({ port: '1', endPort: 65_536 }), 'ports[0].endPort: Invalid value: 65536'],
    ['a range from a name', ports({ port: 'http', endPort: 90 }), 'ports[0]: Invalid value'],
    ['an unknown protocol', ports({ port: '1', protocol: 'ICMP' }), 'ports[0].protocol: Invalid value: "ICMP"'],
    ['too many ports', ports(...Array(41).fill({ port: '1' })), 'toPorts[0].ports: Too many'],
    [
      'ports and icmps',
      from({ toPorts: [{}], icmps: [{}] }),
      'spec.ingress[0]: Invalid value: "object": toPorts and icmps',
    ],
    [
      'peers in two ways',
      from({ fromCIDR: ['10.0.0.0/8'], fromEntities: ['all'] }),
      'one element names peers in two ways',
    ],
    ['an octet beyond 255', from({ fromCIDR: ['10.0.0.300/8'] }), 'fromCIDR[0]: Invalid value: "10.0.0.300/8"'],
    ['a CIDR rule without length', from({ fromCIDRSet: [{ cidr: '10.0.0.1' }] }), 'fromCIDRSet[0].cidr: Invalid value'],
    [
      'two kinds of CIDR',
      from({ fromCIDRSet: [{ cidr: '::/0', cidrGroupRef: 'g' }] }),
      'fromCIDRSet[0]: Invalid value',
    ],
    ['no CIDR', from({ fromCIDRSet: [{ except: [] }] }), 'fromCIDRSet[0]: Invalid value'],
    ['an unknown entity', from({ fromEntities: ['World'] }), 'fromEntities[0]: Unsupported value: "World"'],
    [
      'an unknown operator',
      from({ fromEndpoints: [{ matchExpressions: [{ key: 'a', operator: 'in' }] }] }),
      'operator: Unsupported value: "in"',
    ],
    [
      'a label value of two words',
      from({ fromEndpoints: [{ matchLabels: { a: 'b c' } }] }),
      'matchLabels.a: Invalid value: "b c"',
    ],
    ['an ICMP type beyond 255', from({ icmps: [{ fields: [{ type: 256 }] }] }), 'fields[0].type: Invalid value: 256'],
    [
      'an ICMP type with a zero before it',
      from({ icmps: [{ fields: [{ type: '08' }] }] }),
      'fields[0].type: Invalid value: "08"',
    ],
    ['no ICMP type', from({ icmps: [{ fields: [{}] }] }), 'fields[0].type: Required value'],
    [
      'an unknown family',
      from({ icmps: [{ fields: [{ type: 8, family: 'ipv4' }] }] }),
      'family: Unsupported value: "ipv4"',
    ],
    ['no mode of authentication', from({ authentication: {} }), 'authentication.mode: Required value'],
    [
      'a Service of no name',
      { endpointSelector: {}, egress: [{ toServices: [{ k8sService: {} }] }] },
      'serviceName: Required value',
    ],
    ['an empty list of names', { endpointSelector: {}, egress: [{ toFQDNs: [] }] }, 'toFQDNs: Invalid value'],
    [
      'a name of a host with a space',
      { endpointSelector: {}, egress: [{ toFQDNs: [{ matchName: 'a b' }] }] },
      'toFQDNs[0].matchName: Invalid value: "a b"',
    ],
    [
      'a pattern as a name of a host',
      { endpointSelector: {}, egress: [{ toFQDNs: [{ matchName: '*.a' }] }] },
      'toFQDNs[0].matchName: Invalid value: "*.a"',
    ],
    [
      'a header without a name',
      asks({ rules: { http: [{ headerMatches: [{ value: 'x' }] }] } }),
      'headerMatches[0].name: Required value',
    ],
    [
      'an unknown action for a header',
      asks({ rules: { http: [{ headerMatches: [{ name: 'x', mismatch: 'DROP' }] }] } }),
      'mismatch: Unsupported value: "DROP"',
    ],
    ['TLS without a Secret', asks({ terminatingTLS: {} }), 'terminatingTLS.secret: Required value'],
    ['a Secret without a name', asks({ originatingTLS: { secret: {} } }), 'secret.name: Required value'],
    ['a wildcard inside a server name', asks({ serverNames: ['a.*'] }), 'serverNames[0]: Invalid value: "a.*"'],
    ['a listener of nothing', asks({ listener: { name: 'l' } }), 'listener.envoyConfig: Required value'],
    [
      'a listener of another kind',
      asks({ listener: { name: 'l', envoyConfig: { kind: 'Envoy', name: 'e' } } }),
      'envoyConfig.kind: Unsupported value: "Envoy"',
    ],
    [
      'a priority beyond the last',
      asks({ listener: { name: 'l', priority: 101, envoyConfig: { name: 'e' } } }),
      'listener.priority: Invalid value: 101',
    ],
    [
      'a name that no CIDR group has',
      from({ fromCIDRSet: [{ cidrGroupRef: 'My_Group' }] }),
      'fromCIDRSet[0].cidrGroupRef: Invalid value: "My_Group"',
    ],
    [
      'an unknown operator for CIDR groups',
      from({ fromCIDRSet: [{ cidrGroupSelector: { matchExpressions: [{ key: 'a', operator: 'in' }] } }] }),
      'operator: Unsupported value: "in"',
    ],
    [
      'a label value of two words for nodes',
      from({ fromNodes: [{ matchLabels: { a: 'b c' } }] }),
      'matchLabels.a: Invalid value: "b c"',
    ],
    ['a long log text', { ...from({}), log: { value: 'x'.repeat(33) } }, 'log.value: Too long'],
  ])('refuses what is always wrong: %s', async (_title, spec, why) => {
    expect(await refusal('CiliumNetworkPolicy', policy('CiliumNetworkPolicy', { spec }))).toContain(why);
  });

  it('refuses a cluster-wide policy with two subjects or none', async () => {
    const kind = 'CiliumClusterwideNetworkPolicy';
    const why = (parts: object) => refusal(kind, policy(kind, parts));
    for (const subject of [{}, { endpointSelector: {}, nodeSelector: {} }])
      for (const parts of [{ spec: { ...subject, ingress: [{}] } }, { specs: [{ ...subject, ingress: [{}] }] }])
        expect(await why(parts)).toContain('write endpointSelector ({}: every pod), or nodeSelector, and not both');
    expect(await why({ spec: { nodeSelector: {}, ingress: [{}] } })).toBeUndefined();
  });

  it('keeps what it does not know, for the operator to name it', async () => {
    const object = policy('CiliumNetworkPolicy', {
      spec: from({ fromEndpoint: [{ app: 'a' }], toPorts: [{ port: 1 }] }),
    });
    expect(await refusal('CiliumNetworkPolicy', object)).toBeUndefined();
    const ref = { group: 'cilium.io', version: 'v2', plural: 'ciliumnetworkpolicies', namespace: 'default' };
    const { name } = object.metadata as { readonly name: string };
    expect((await client.get({ ...ref, name })).spec).toEqual(object.spec);
  });
});
