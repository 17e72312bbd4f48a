import { describe, expect, it } from '@jest/globals';
import { CniError } from './errors.ts';
import { answerVersion, parseCall } from './request.ts';

const ENV = { CNI_COMMAND: 'ADD', CNI_CONTAINERID: 'c1', CNI_NETNS: '/var/run/netns/x', CNI_IFNAME: 'eth0' };
const CONFIG = { cniVersion: '1.0.0', name: 'weir', type: 'weir-cni' };

function parse(env: Record<string, string | undefined>, config: unknown = CONFIG) {
  const kept = Object.fromEntries(Object.entries({ ...ENV, ...env }).filter(([, value]) => value !== undefined));
  return parseCall({ env: kept, stdin: typeof config === 'string' ? config : JSON.stringify(config) });
}

describe('parseCall', () => {
  it('reads an attachment and its pod', () => {
    expect(parse({ CNI_ARGS: 'IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=app1;K8S_POD_UID=u1' })).toEqual({
      command: 'ADD',
      cniVersion: '1.0.0',
      attachment: { containerId: 'c1', ifname: 'eth0' },
      netns: '/var/run/netns/x',
      pod: { namespace: 'default', name: 'app1', uid: 'u1' },
      hostPorts: [],
      mapsHostPorts: false,
      valid: [],
    });
  });
  it.each([
    [
      [{ hostPort: 8080, containerPort: 80, protocol: 'udp' }, { hostPort: 81 }],
      ['8080/udp', '81/tcp'],
    ],
    // As containerd writes them.
    [[{ HostPort: 8082, ContainerPort: 80, Protocol: 'tcp', HostIP: '' }], ['8082/tcp']],
    [[{ hostPort: 0 }, { hostPort: '80' }, null, 'x'], []],
    ['all', []],
    [undefined, []],
  ])('reads which ports of the node a pod asks for: %j', (portMappings, hostPorts) => {
    expect(parse({}, { ...CONFIG, runtimeConfig: { portMappings }, mapsHostPorts: true })).toMatchObject({
      hostPorts,
      mapsHostPorts: true,
    });
  });
  it('lets DEL do without a netns, and only DEL', () => {
    expect(parse({ CNI_COMMAND: 'DEL', CNI_NETNS: undefined })).not.toHaveProperty('netns');
    expect(() => parse({ CNI_NETNS: undefined })).toThrow('CNI_NETNS is missing');
  });
  it.each([
    ['an unknown command', { CNI_COMMAND: 'NOPE' }, CONFIG, 4],
    ['a netns that would break out of its line', { CNI_NETNS: '/x\nlink delete eth0' }, CONFIG, 4],
    ['a netns with a blank', { CNI_NETNS: '/x y' }, CONFIG, 4],
    ['an interface name too long', { CNI_IFNAME: 'eth0123456789abc' }, CONFIG, 4],
    ['an interface name that is a path', { CNI_IFNAME: '..' }, CONFIG, 4],
    ['a container id with a slash', { CNI_CONTAINERID: 'a/b' }, CONFIG, 4],
    ['half a pod', { CNI_ARGS: 'K8S_POD_NAME=x' }, CONFIG, 4],
    ['stdin that is not JSON', {}, '{', 6],
    ['stdin that is no object', {}, '[]', 6],
    ['an unknown version', {}, { ...CONFIG, cniVersion: '0.2.0' }, 1],
    ['GC without a list', { CNI_COMMAND: 'GC' }, CONFIG, 7],
  ])('refuses %s', (_what, env, config, code) => {
    let caught: unknown;
    try {
      parse(env, config);
    } catch (error) {
      caught = error;
    }
    expect(caught).toBeInstanceOf(CniError);
    expect((caught as CniError).cniCode).toBe(code);
  });
  it('answers in the version of the request, or the oldest safe one', () => {
    expect(answerVersion({ env: {}, stdin: '{"cniVersion":"1.1.0"}' })).toBe('1.1.0');
    expect(answerVersion({ env: {}, stdin: '{' })).toBe('1.0.0');
    expect(answerVersion('x')).toBe('1.0.0');
  });
});
