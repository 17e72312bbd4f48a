import { describe, expect, it } from '@jest/globals';
import { parseConfig, parseDuration, VERSION } from './config.ts';
import { parseAddress } from './health.ts';
import { DEFAULT_LIMITS } from './limits.ts';
import { OPERATOR_PARTS } from './part-list.ts';

const ENV = { POD_NAME: 'pod-x', POD_NAMESPACE: 'weir' };
const parse = (...args: string[]) => parseConfig(args, ENV, OPERATOR_PARTS, { exit: false });

describe('command line', () => {
  it('has safe defaults', () => {
    expect(parse()).toMatchObject({
      kubeconfig: undefined,
      clusterName: 'default',
      healthAddress: '127.0.0.1:9964',
      identityGcGrace: 1_800_000,
      identityGcInterval: 900_000,
      ...DEFAULT_LIMITS,
      leaderElect: true,
      namespace: 'weir',
      leaderName: 'weir-operator',
    });
    expect(parse()).toMatchObject({ command: 'run', identity: expect.stringMatching(/^pod-x-[0-9a-z]{12}$/) });
  });

  it('reads flags', () => {
    expect(
      parse('--no-leader-elect', '--cluster-name', 'east', '--health-address=', '--identity-gc-grace', '1h30m'),
    ).toMatchObject({
      leaderElect: false,
      clusterName: 'east',
      healthAddress: '',
      identityGcGrace: 5_400_000,
    });
  });

  it('metrics by TLS have an address and a certificate', () => {
    expect(parse()).not.toHaveProperty('metricsAddress');
    expect(parse('--metrics-address=:9', '--metrics-cert-path=/tls')).toMatchObject({
      metricsAddress: ':9',
      metricsCertPath: '/tls',
    });
  });

  it('each limit has a flag', () => {
    expect(
      parse(
        '--identities-per-namespace=1',
        '--selectors-per-policy=2',
        '--rules-per-policy=3',
        '--policies-per-namespace=0',
      ),
    ).toMatchObject({
      identitiesPerNamespace: 1,
      selectorsPerPolicy: 2,
      rulesPerPolicy: 3,
      policiesPerNamespace: 0,
    });
  });

  it.each([
    ['--unknown'],
    ['--selectors-per-policy=-1'],
    ['--selectors-per-policy=1e3'],
    ['--rules-per-policy='],
    ['stray'],
    ['--cluster-name=A_B'],
    ['--identity-gc-grace=5'],
    ['--identity-gc-grace=0s'],
    ['--health-address=nope'],
    ['--metrics-address=:9'],
    ['--metrics-cert-path=/tls'],
    ['--log-level=loud'],
  ])('refuses %s', (arg) => {
    expect(() => parse(arg)).toThrow();
  });

  it.each([
    ['--rules-per-policy=10000000000', /from 0 to 999999999; 0: no limit/],
    ['--rules-per-policy=12345678901234567890', /from 0 to 999999999; 0: no limit/],
  ])('refuses %s, and says the range', (arg, range) => {
    expect(() => parse(arg)).toThrow(range);
  });

  it('takes the greatest value of the range', () => {
    expect(parse('--rules-per-policy=999999999')).toMatchObject({ rulesPerPolicy: 999_999_999 });
  });

  it('uninstall has flags of its own', () => {
    expect(parse('uninstall')).toEqual({
      command: 'uninstall',
      kubeconfig: undefined,
      requestTimeoutMs: 30_000,
      logLevel: 'info',
      namespace: 'weir',
      daemonSet: 'weir-agent',
      deployment: 'weir-operator',
      leaseName: 'weir-operator',
      timeoutMs: 120_000,
    });
    const given = '--namespace=net --daemonset=a --deployment=o --timeout=120s --kubeconfig=k --log-level=debug';
    expect(parse('uninstall', ...given.split(' '))).toMatchObject({
      namespace: 'net',
      daemonSet: 'a',
      deployment: 'o',
      timeoutMs: 120_000,
      kubeconfig: 'k',
      logLevel: 'debug',
    });
    expect(() => parse('uninstall', '--cluster-name=east')).toThrow(/cluster-name/);
    expect(() => parse('uninstall', 'stray')).toThrow();
    expect(() => parse('uninstall', '--timeout=soon')).toThrow(/duration/);
  });

  it('says its version', () => {
    expect(VERSION).toMatch(/^\d+\.\d+\.\d+$/);
    expect(() => parse('--version')).toThrow(expect.objectContaining({ code: 'commander.version', message: VERSION }));
  });

  it('durations and addresses', () => {
    expect(parseDuration('250ms')).toBe(250);
    for (const bad of ['', 's', '1d', '1m 2s', '-1s']) expect(() => parseDuration(bad)).toThrow();
    expect(parseAddress('[::1]:80')).toEqual({ host: '::1', port: 80 });
    expect(parseAddress(':9964')).toEqual({ host: undefined, port: 9964 });
    expect(() => parseAddress('host:70000')).toThrow(/host:70000/);
  });
});
