/** What a policy says that a Service's own address escapes (serviceWarnings). */
import { describe, expect, it } from '@jest/globals';
import { parsePolicy } from './parse.ts';
import { serviceWarnings } from './service-addresses.ts';

const pods = { toEndpoints: [{ matchLabels: { app: 'db' } }] };
const port = [{ ports: [{ port: '443', protocol: 'TCP' }] }];

function warned(spec: object): string[] {
  const { rules, problems } = parsePolicy(
    { metadata: { name: 'p', namespace: 'default' }, spec: { endpointSelector: {}, ...spec } },
    'CiliumNetworkPolicy',
  );
  expect(problems).toEqual([]);
  return serviceWarnings(rules).map(({ code, path, message }) => `${code} ${path} ${message.split(' ', 3).join(' ')}`);
}

const DENY = 'does not hold';
const WIDE = 'reaches pods and';
const POD = 'does not allow';

describe('serviceWarnings', () => {
  it.each<[string, object, string[]]>([
    ['deny of pods', { egressDeny: [pods] }, [`spec.egressDeny[0] ${DENY}`]],
    ['deny of the cluster', { egressDeny: [{ toEntities: ['cluster'] }] }, [`spec.egressDeny[0] ${DENY}`]],
    [
      'deny of a CIDR, to which a Service may lead',
      { egressDeny: [{ toCIDR: ['192.0.2.0/24'] }] },
      [`spec.egressDeny[0] ${DENY}`],
    ],
    [
      'deny of a port, which a Service may change',
      { egressDeny: [{ toEntities: ['all'], toPorts: port }] },
      [`spec.egressDeny[0] ${DENY}`],
    ],
    ['deny of everything', { egressDeny: [{ toEntities: ['all'] }] }, []],
    ['deny of the world: Services too', { egressDeny: [{ toEntities: ['world'] }] }, []],
    ['deny of nobody', { egressDeny: [{ toEntities: ['none'] }] }, []],
    ['allow of pods', { egress: [pods] }, [`spec.egress[0] ${POD}`]],
    ['allow of pods, and no default deny', { egress: [pods], enableDefaultDeny: { egress: false } }, []],
    ['allow of nodes', { egress: [{ toEntities: ['host'] }] }, []],
    ['allow of addresses where few Services are (docs/security.md)', { egress: [{ toCIDR: ['192.0.2.0/24'] }] }, []],
    [
      'allow of private addresses, of which Services have some',
      { egress: [{ toCIDR: ['10.0.0.0/8'] }, { toCIDR: ['10.96.0.0/16'] }, { toCIDR: ['8.0.0.0/6'] }] },
      [0, 1, 2].map((index) => `spec.egress[${index}] ${WIDE}`),
    ],
    [
      'allow of one address, which may be a Service (docs/security.md)',
      { egress: [{ toCIDR: ['10.96.0.10/32'] }] },
      [],
    ],
    [
      'allow of all private addresses and of those beside them',
      {
        egress: ['172.16.0.0/12', '192.168.7.0/24', '100.64.0.0/10', '100.128.0.0/9', '172.32.0.0/11'].map((cidr) => ({
          toCIDR: [cidr],
        })),
      },
      [0, 1, 2].map((index) => `spec.egress[${index}] ${WIDE}`),
    ],
    [
      'allow with exceptions',
      { egress: [{ toCIDRSet: [{ cidr: '10.0.0.0/8', except: ['10.1.0.0/16'] }] }] },
      [`spec.egress[0] ${WIDE}`],
    ],
    ['allow of everything', { egress: [{ toEntities: ['all'] }] }, []],
    ['allow of the world, pods beside it', { egress: [pods, { toCIDR: ['0.0.0.0/0'] }] }, [`spec.egress[1] ${WIDE}`]],
    [
      'allow of one port of the world does not open Services',
      { egress: [pods, { toEntities: ['world'], toPorts: port }] },
      [`spec.egress[0] ${POD}`, `spec.egress[1] ${WIDE}`],
    ],
    ['allow of ingress', { ingress: [{ fromEndpoints: [{}] }] }, []],
    [
      'deny of ingress, which a NodePort escapes',
      { ingressDeny: [{ fromCIDR: ['10.0.0.0/8'] }, { fromEndpoints: [{}] }] },
      [0, 1].map((index) => `spec.ingressDeny[${index}] ${DENY}`),
    ],
    ['deny of ingress from nobody', { ingressDeny: [{ fromEntities: ['none'] }] }, []],
  ])('%s', (_, spec, expected) => {
    expect(warned(spec)).toEqual(expected.map((text) => `Warning ${text}`));
  });

  it('reads a NetworkPolicy', () => {
    const spec = {
      podSelector: {},
      policyTypes: ['Egress'],
      egress: [{ to: [{ podSelector: {} }] }, { to: [{ ipBlock: { cidr: '0.0.0.0/0', except: ['10.0.0.0/8'] } }] }, {}],
    };
    const { rules } = parsePolicy({ metadata: { name: 'p', namespace: 'default' }, spec }, 'NetworkPolicy');
    // The last element allows everything.
    expect(serviceWarnings(rules).map(({ path }) => path)).toEqual(['spec.egress[1]']);
  });
});
