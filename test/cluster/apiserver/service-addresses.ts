/** Services: defaults, rules, and the allocation of cluster addresses and node ports. */
import { isIP } from 'node:net';
import { type Cause, cause } from './errors.ts';
import { at, ensureObject, type JsonObject, list, object, scalarText, text } from './json.ts';
import { dnsLabelFaults, faults } from './label-rules.ts';
import { targetRules } from './more-rules.ts';
import { objects, portRule, protocolRule, setDefault } from './pod-rules.ts';
import type { Strategy } from './registry.ts';

const FIRST = 10;
const SIZE = 65_000;
const NODE_PORT_FIRST = 30_000;
const NODE_PORT_COUNT = 2768;

/** Addresses come from 10.96.0.0/16, node ports from 30000-32767; `services` lists the stored ones. */
export function serviceStrategy(services: () => JsonObject[]): Strategy {
  return {
    defaults: (o) => {
      const spec = ensureObject(o, 'spec');
      setDefault(spec, 'type', 'ClusterIP');
      setDefault(spec, 'sessionAffinity', 'None');
      if (spec.type !== 'ExternalName') {
        setDefault(spec, 'internalTrafficPolicy', 'Cluster');
        if (spec.type !== 'ClusterIP') setDefault(spec, 'externalTrafficPolicy', 'Cluster');
        else delete spec.externalTrafficPolicy;
      }
      for (const port of objects(spec, 'ports')) {
        setDefault(port, 'protocol', 'TCP');
        setDefault(port, 'targetPort', port.port ?? null);
      }
    },
    prepareCreate: (o) => allocate(o, services()),
    prepareUpdate: (o, previous) => {
      const spec = ensureObject(o, 'spec');
      for (const field of ['clusterIP', 'clusterIPs']) {
        const old = object(previous, 'spec')[field];
        const given = spec[field];
        const left = given === '' || (Array.isArray(given) && given.length === 0);
        if (left) delete spec[field];
        if (old !== undefined && spec.type !== 'ExternalName') setDefault(spec, field, old);
      }
      for (const port of objects(spec, 'ports')) {
        if (spec.type === 'ClusterIP' && previous !== undefined) delete port.nodePort;
        const old = objects(previous, 'spec', 'ports').find(
          (p) => p.port === port.port && p.protocol === port.protocol,
        );
        if (old?.nodePort !== undefined && spec.type !== 'ClusterIP') setDefault(port, 'nodePort', old.nodePort);
      }
      allocate(o, services());
    },
    validate: (o, previous) =>
      serviceRules(o, previous, new Set(services().map((service) => text(service, 'spec', 'clusterIP')))),
  };
}

function allocate(o: JsonObject, existing: JsonObject[]): void {
  const spec = ensureObject(o, 'spec');
  if (spec.type !== 'ExternalName') {
    setDefault(spec, 'ipFamilies', ['IPv4']);
    setDefault(spec, 'ipFamilyPolicy', 'SingleStack');
  }
  setDefault(ensureObject(o, 'status'), 'loadBalancer', {});
  const wantsAddress = spec.type !== 'ExternalName' && text(spec, 'clusterIP') === '';
  if (wantsAddress) {
    const used = new Set(existing.map((service) => text(service, 'spec', 'clusterIP')));
    const free = firstFree((i) => address(i), used, FIRST, SIZE);
    spec.clusterIP = free;
  }
  if (text(spec, 'clusterIP') !== '') setDefault(spec, 'clusterIPs', [text(spec, 'clusterIP')]);
  if (spec.type !== 'NodePort' && spec.type !== 'LoadBalancer') return;
  const used = new Set(
    existing.flatMap((service) => objects(service, 'spec', 'ports').map((p) => scalarText(p.nodePort))),
  );
  for (const port of objects(spec, 'ports')) {
    if (port.nodePort !== undefined) continue;
    const free = firstFree((i) => String(NODE_PORT_FIRST + i), used, 0, NODE_PORT_COUNT);
    port.nodePort = Number(free);
    used.add(free);
  }
}

const address = (i: number): string => `10.96.${i >> 8}.${i & 255}`;

function firstFree(make: (i: number) => string, used: ReadonlySet<string>, first: number, count: number): string {
  for (let i = first; i < count; i++) if (!used.has(make(i))) return make(i);
  throw new Error(
    `no free ${make(first)}..${make(count - 1)}: all ${count - first} are in use; delete unused Services`,
  );
}

/** An address that someone asks for must be in the range and free. */
function addressRules(wanted: string, taken: ReadonlySet<string>): Cause[] {
  const failed = (why: string): Cause[] => [
    cause.invalid('spec.clusterIPs', [wanted], `failed to allocate IP ${wanted}: ${why}`),
  ];
  if (!wanted.startsWith('10.96.'))
    return failed(`the provided IP (${wanted}) is not in the valid range. The range of valid IPs is 10.96.0.0/16`);
  return taken.has(wanted) ? failed('provided IP is already allocated') : [];
}

function serviceRules(o: JsonObject, previous: JsonObject | undefined, taken: ReadonlySet<string>): Cause[] {
  const out: Cause[] = [];
  const ports = objects(o, 'spec', 'ports');
  const type = text(o, 'spec', 'type');
  const types = ['ClusterIP', 'ExternalName', 'LoadBalancer', 'NodePort'];
  if (!types.includes(type)) out.push(cause.notSupported('spec.type', type, types));
  const clusterIP = text(o, 'spec', 'clusterIP');
  if (ports.length === 0 && clusterIP !== 'None' && type !== 'ExternalName') out.push(cause.required('spec.ports'));
  if (!['ClientIP', 'None'].includes(scalarText(at(o, 'spec', 'sessionAffinity'))))
    out.push(cause.notSupported('spec.sessionAffinity', at(o, 'spec', 'sessionAffinity'), ['ClientIP', 'None']));
  if (type === 'ExternalName' && text(o, 'spec', 'externalName') === '') out.push(cause.required('spec.externalName'));
  if (clusterIP !== '' && clusterIP !== 'None' && !isIP(clusterIP))
    out.push(
      cause.invalid('spec.clusterIPs[0]', clusterIP, 'must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)'),
    );
  else if (previous === undefined && clusterIP !== '' && clusterIP !== 'None')
    out.push(...addressRules(clusterIP, taken));
  const seen = new Set<string>();
  const numbers = new Set<string>();
  ports.forEach((port, i) => {
    const where = `spec.ports[${i}]`;
    out.push(...portRule(port.port, `${where}.port`), ...protocolRule(port.protocol, `${where}.protocol`));
    if (typeof port.targetPort === 'number') out.push(...portRule(port.targetPort, `${where}.targetPort`));
    const name = text(port, 'name');
    out.push(...targetRules(port.targetPort, `${where}.targetPort`));
    if (name === '' && ports.length > 1) out.push(cause.required(`${where}.name`));
    else if (name !== '') out.push(...faults(`${where}.name`, name, dnsLabelFaults(name)));
    const both = `${scalarText(port.port)}/${scalarText(port.protocol)}`;
    if (numbers.has(both)) out.push(cause.duplicate(where, { port: port.port ?? 0, protocol: port.protocol ?? '' }));
    numbers.add(both);
    if (seen.has(name) && name !== '') out.push(cause.duplicate(`${where}.name`, name));
    seen.add(name);
  });
  const before = text(previous, 'spec', 'clusterIP');
  if (before !== '' && before !== clusterIP && text(previous, 'spec', 'type') !== 'ExternalName') {
    out.push(cause.invalid('spec.clusterIPs[0]', list(o, 'spec', 'clusterIPs'), 'may not change once set'));
  }
  return out;
}
