import { afterEach, describe, expect, it } from '@jest/globals';
import { AGENT_PARTS } from '../part-list.ts';
import { type BaseConfig, parseConfig } from './config.ts';
import { ConfigError } from './errors.ts';

/** Flags of parts that are looked at here. */
interface AgentConfig extends BaseConfig {
  readonly daemonset?: unknown;
  readonly healthAddress?: unknown;
  readonly metricsAddress?: unknown;
}

afterEach(() => {
  for (const name of Object.keys(process.env)) if (name.startsWith('WEIR_')) delete process.env[name];
});

function config(...args: string[]) {
  const parsed = parseConfig<AgentConfig>(args, AGENT_PARTS);
  if (!('config' in parsed)) throw new Error('printed');
  return parsed.config;
}

describe('parseConfig', () => {
  it('has defaults', () => {
    expect(config('--node-name', 'n1')).toMatchObject({
      nodeName: 'n1',
      clusterName: 'default',
      kubernetes: true,
      socket: '/var/run/weir/weir.sock',
      bpfRoot: '/sys/fs/bpf/weir',
      stateDir: '/var/run/weir/state',
      policyEnforcement: 'default',
      allowLocalhost: true,
      logLevel: 'info',
      routing: 'direct',
      procSys: '/proc/sys',
    });
    expect(config().daemonset).toBeUndefined();
  });
  it('takes the environment where flags are absent', () => {
    process.env.WEIR_NODE_NAME = 'from-env';
    process.env.WEIR_ALLOW_LOCALHOST = 'false';
    expect(config()).toMatchObject({ nodeName: 'from-env', allowLocalhost: false });
    expect(config('--node-name', 'flag').nodeName).toBe('flag');
  });
  it('takes a variable of a flag without a value by what it says', () => {
    for (const [text, kubernetes] of [
      ['true', false],
      ['1', false],
      ['false', true],
      ['0', true],
      ['', true],
    ] as const) {
      process.env.WEIR_NO_KUBERNETES = text;
      expect([text, config().kubernetes]).toEqual([text, kubernetes]);
    }
    expect(config('--no-kubernetes').kubernetes).toBe(false);
    process.env.WEIR_NO_KUBERNETES = 'maybe';
    expect(() => config()).toThrow(/WEIR_NO_KUBERNETES is 'maybe'. It must be true or false/);
  });
  it('reads host and port', () => {
    expect(config('--health-address=[::1]:9').healthAddress).toEqual({ host: '::1', port: 9 });
    expect(config('--health-address=:9').healthAddress).toEqual({ host: undefined, port: 9 });
  });
  it.each([
    [['--bogus'], '--bogus'],
    [['extra'], 'Allowed choices are run, cleanup, mount-bpffs'],
    [['cleanup', 'extra'], 'too many arguments'],
    [['--node-name', 'N 1'], "'--node-name <name>' argument 'N 1' is invalid"],
    [['--cluster-name', 'a.b'], 'at most 32 lower-case letters'],
    [['--cluster-name', 'a'.repeat(33)], 'at most 32 lower-case letters'],
    [['--socket', 'weir.sock'], 'absolute path'],
    [['--pod-cidr', '10.1.0.0'], 'use a prefix of at least 4 addresses, such as 10.1.0.0/24'],
    [['--pod-cidr', '10.1.0.0/31'], 'at least 4 addresses'],
    [['--policy-enforcement', 'sometimes'], 'Allowed choices are default, always, never'],
    [['--allow-localhost', 'maybe'], 'true or false'],
    [['--ct-entries', '5'], '1024'],
    [['--health-address', '9100x'], 'HOST:PORT'],
    [['--no-kubernetes', '--kubeconfig', '/x'], 'exclude each other'],
    [['--no-kubernetes', '--daemonset', 'a/b'], 'exclude each other'],
    [['--daemonset', 'weir-agent'], 'NAMESPACE/NAME'],
    [['--daemonset', 'a/b/c'], 'NAMESPACE/NAME'],
    [['--metrics-cert-path', '/tls'], 'needs --metrics-address'],
    [['--metrics-cert-path', 'tls', '--metrics-address', ':9'], 'absolute path'],
    [['--metrics-cert-path', '/tls', '--metrics-address', ':9', '--no-kubernetes'], 'exclude each other'],
    [['--routing', 'tunnel'], 'Allowed choices are direct, none'],
    [['--proc-sys', 'proc'], 'absolute path'],
  ])('refuses %j and names flag, value and fix', (args, message) => {
    expect(() => config(...args)).toThrow(ConfigError);
    expect(() => config(...args)).toThrow(message);
  });
  it('finds the subcommand behind flags', () => {
    const image = ['--datapath-object', '/app/weir.o', '--cni-binary', '/app/weir-cni'];
    expect(parseConfig([...image, 'mount-bpffs', '--host-proc=/h'], AGENT_PARTS)).toMatchObject({
      command: 'mount-bpffs',
      config: { hostProc: '/h' },
    });
    expect(parseConfig([...image, 'cleanup'], AGENT_PARTS)).toMatchObject({ command: 'cleanup' });
    expect(parseConfig(image, AGENT_PARTS)).toMatchObject({ command: 'run' });
  });
  it('takes a DaemonSet, and an IPv4 address in brackets', () => {
    expect(config('--daemonset', 'kube-system/weir-agent').daemonset).toEqual({
      namespace: 'kube-system',
      name: 'weir-agent',
    });
    expect(config('--metrics-address', '[10.0.0.1]:9').metricsAddress).toEqual({ host: '10.0.0.1', port: 9 });
  });
  it('only prints for --help and --version', () => {
    expect(parseConfig(['--help'], AGENT_PARTS)).toEqual({ printed: expect.stringContaining('--node-name') });
    expect(parseConfig(['--version'], AGENT_PARTS)).toEqual({ printed: expect.stringMatching(/^\d+\.\d+\.\d+\n$/) });
  });
});
