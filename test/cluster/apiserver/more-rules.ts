/** Endpoint slices, events, disruption budgets, leases and nodes: their defaults and rules. */
import { isIPv4, isIPv6 } from 'node:net';
import { type Cause, cause } from './errors.ts';
import { at, equal, type JsonObject, list, number, object, scalarText, text } from './json.ts';
import { faults, keyFaults, portNameFaults } from './label-rules.ts';
import { objects, protocolRule, setDefault } from './pod-rules.ts';
import type { Strategy } from './registry.ts';

const NO_ADDRESS = 'must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)';
const ADDRESS_TYPES = ['FQDN', 'IPv4', 'IPv6'];

export const endpointSlice: Strategy = {
  defaults: (o) => {
    setDefault(o, 'endpoints', []);
    for (const port of objects(o, 'ports')) {
      setDefault(port, 'name', '');
      setDefault(port, 'protocol', 'TCP');
    }
  },
  validate: (o, previous) => {
    const out: Cause[] = [];
    const type = text(o, 'addressType');
    if (type === '') out.push(cause.required('addressType'));
    else if (!ADDRESS_TYPES.includes(type)) out.push(cause.notSupported('addressType', type, ADDRESS_TYPES));
    if (previous !== undefined && previous.addressType !== o.addressType) {
      return [cause.invalid('addressType', type, 'field is immutable')];
    }
    objects(o, 'endpoints').forEach((endpoint, i) => {
      const where = `endpoints[${i}].addresses`;
      const addresses = list(endpoint, 'addresses').map(scalarText);
      if (addresses.length === 0) out.push(cause.required(where, 'must contain at least 1 address'));
      addresses.forEach((address, j) => {
        out.push(...addressFaults(address, type, where, `${where}[${j}]`));
      });
    });
    const names = new Set<string>();
    objects(o, 'ports').forEach((port, i) => {
      const name = text(port, 'name');
      if (names.has(name)) out.push(cause.duplicate(`ports[${i}].name`, name));
      names.add(name);
      out.push(...protocolRule(port.protocol, `ports[${i}].protocol`));
    });
    return out;
  },
};

function addressFaults(address: string, type: string, all: string, where: string): Cause[] {
  if (type !== 'IPv4' && type !== 'IPv6') return [];
  if (!isIPv4(address) && !isIPv6(address)) return [cause.invalid(where, address, NO_ADDRESS)];
  const out: Cause[] = [];
  if (type === 'IPv4' && !isIPv4(address)) out.push(cause.invalid(all, address, 'must be an IPv4 address'));
  if (type === 'IPv6' && !isIPv6(address)) out.push(cause.invalid(all, address, 'must be an IPv6 address'));
  if (address.startsWith('127.') || address === '::1') {
    out.push(cause.invalid(where, address, 'may not be in the loopback range (127.0.0.0/8, ::1/128)'));
  }
  return out;
}

export const endpoints: Strategy = {
  defaults: (o) => {
    for (const subset of objects(o, 'subsets')) {
      for (const port of objects(subset, 'ports')) setDefault(port, 'protocol', 'TCP');
    }
  },
  warnings: () => ['v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice'],
};

/** Both shapes of an event are judged in the core one, by the rules of the API through which it comes: core/v1 asks for less. */
export const event: Strategy = {
  // Empty values that Go writes out; nobody owns them.
  prepareCreate: (o) => {
    setDefault(o, 'source', {});
    setDefault(o, 'reportingComponent', '');
    setDefault(o, 'reportingInstance', '');
  },
  validate: (o) => eventRules(o, 'reportingComponent'),
};

/** The rules of events.k8s.io/v1. */
export const modernEvent: Strategy = {
  ...event,
  validate: (o, previous) => {
    const out = eventRules(o, 'reportingController');
    if (!equal(o.series, previous?.series)) out.push(...seriesRules(o));
    return [...out, ...(previous === undefined ? creationRules(o) : settledRules(o, previous))];
  },
};

/** What an event says of itself is bounded once it has a time of its own; `controller` is what its API calls the field. */
function eventRules(o: JsonObject, controller: string): Cause[] {
  const out: Cause[] = [];
  const [involved, own] = [text(o, 'involvedObject', 'namespace'), text(o, 'metadata', 'namespace')];
  const timed = text(o, 'eventTime') !== '';
  const clusterWide = timed ? ['default', 'kube-system'] : ['default'];
  if (involved === '' ? !clusterWide.includes(own) : !timed && involved !== own)
    out.push(cause.invalid('involvedObject.namespace', involved, 'does not match event.namespace'));
  if (!timed) return out;
  const component = text(o, 'reportingComponent');
  if (component === '') out.push(cause.required(controller));
  out.push(...faults(controller, component, keyFaults(component)));
  for (const field of ['reportingInstance', 'action', 'reason']) {
    if (text(o, field) === '') out.push(cause.required(field));
    out.push(...lengthRule(o, field, 128));
  }
  return [...out, ...lengthRule(o, 'message', 1024)];
}

function lengthRule(o: JsonObject, field: string, most: number): Cause[] {
  return Buffer.byteLength(text(o, field)) <= most
    ? []
    : [cause.invalid(field, '', `can have at most ${most} characters`)];
}

function seriesRules(o: JsonObject): Cause[] {
  if (o.series === undefined) return [];
  const out: Cause[] = [];
  if ((number(o, 'series', 'count') ?? 0) < 2) out.push(cause.invalid('series.count', '', 'should be at least 2'));
  if (text(o, 'series', 'lastObservedTime') === '') out.push(cause.required('series.lastObservedTime'));
  return out;
}

function creationRules(o: JsonObject): Cause[] {
  const out: Cause[] = [];
  if (text(o, 'eventTime') === '') out.push(cause.required('eventTime'));
  const type = text(o, 'type');
  if (type !== 'Normal' && type !== 'Warning') out.push(cause.invalid('type', '', `has invalid value: ${type}`));
  const old = ['firstTimestamp', 'lastTimestamp'].filter((field) => text(o, field) !== '');
  if ((number(o, 'count') ?? 0) !== 0) old.push('count');
  if (text(o, 'source', 'component') !== '' || text(o, 'source', 'host') !== '') old.push('source');
  return [...out, ...old.map((field) => cause.invalid(field, '', 'needs to be unset'))];
}

/** All but the series stays as it was. */
function settledRules(o: JsonObject, previous: JsonObject): Cause[] {
  return [
    ...['involvedObject', 'reason', 'message', 'source', 'firstTimestamp', 'lastTimestamp', 'count', 'type'],
    ...['eventTime', 'action', 'related', 'reportingComponent', 'reportingInstance'],
  ].flatMap((field) =>
    equal(o[field], previous[field])
      ? []
      : [cause.invalid(field === 'reportingComponent' ? 'reportingController' : field, o[field], 'field is immutable')],
  );
}

export const disruptionBudget: Strategy = {
  prepareCreate: (o) => {
    // No controller counts pods here: a budget allows nothing until someone writes its status.
    o.status = { currentHealthy: 0, desiredHealthy: 0, disruptionsAllowed: 0, expectedPods: 0 };
  },
  validate: (o) => {
    const spec = object(o, 'spec');
    if (spec.minAvailable !== undefined && spec.maxUnavailable !== undefined)
      return [cause.invalid('spec', spec, 'minAvailable and maxUnavailable cannot be both set')];
    return ['minAvailable', 'maxUnavailable'].flatMap((field): Cause[] => {
      const value = spec[field];
      const share = /^(\d+)%$/.exec(scalarText(value))?.[1];
      if (share !== undefined && Number(share) > 100)
        return [cause.invalid(`spec.${field}`, value, 'must not be greater than 100%')];
      if (typeof value === 'number' && value < 0)
        return [cause.invalid(`spec.${field}`, value, 'must be greater than or equal to 0')];
      return [];
    });
  },
};

export const lease: Strategy = {
  validate: (o) => {
    const out: Cause[] = [];
    const [duration, transitions] = [number(o, 'spec', 'leaseDurationSeconds'), number(o, 'spec', 'leaseTransitions')];
    if (duration !== undefined && duration <= 0)
      out.push(cause.invalid('spec.leaseDurationSeconds', duration, 'must be greater than 0'));
    if (transitions !== undefined && transitions < 0)
      out.push(cause.invalid('spec.leaseTransitions', transitions, 'must be greater than or equal to 0'));
    return out;
  },
};

const EFFECTS = ['NoSchedule', 'PreferNoSchedule', 'NoExecute'];

export const node: Strategy = {
  defaults: (o) => {
    const status = object(o, 'status');
    if (status.capacity !== undefined) setDefault(status, 'allocatable', structuredClone(status.capacity));
  },
  validate: (o, previous) => {
    const out: Cause[] = [];
    objects(o, 'spec', 'taints').forEach((taint, i) => {
      if (!EFFECTS.includes(scalarText(taint.effect)))
        out.push(cause.notSupported(`metadata.taints[${i}].effect`, taint.effect, EFFECTS));
    });
    const seen = new Set<string>();
    objects(o, 'status', 'addresses').forEach(({ type, address }, i) => {
      // A node may have several addresses of a type.
      const key = JSON.stringify([type, address]);
      if (seen.has(key))
        out.push(cause.duplicate(`status.addresses[${i}]`, { Type: type ?? '', Address: address ?? '' }));
      seen.add(key);
    });
    const before = at(previous, 'spec', 'podCIDR');
    if (before !== undefined && before !== '' && before !== at(o, 'spec', 'podCIDR'))
      out.push(cause.forbidden('spec.podCIDRs', 'node updates may not change podCIDR except from "" to valid'));
    return out;
  },
};

/** Rules of a numbered or named target port. */
export function targetRules(value: unknown, where: string): Cause[] {
  return typeof value === 'string' ? faults(where, value, portNameFaults(value)) : [];
}
