/** What the pods of the chart may do on a node. */
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from '@jest/globals';
import { CHART, type Container, find, type PodSpec, podSpec, type Rendered, render, template } from './render.ts';

const pods = (rendered: readonly Rendered[]): (readonly [string, PodSpec])[] =>
  rendered.flatMap((object) => {
    const spec = podSpec(object);
    return spec === undefined ? [] : [[`${object.kind}/${object.metadata.name}`, spec] as const];
  });
const containers = (spec: PodSpec): readonly Container[] => [...(spec.initContainers ?? []), ...spec.containers];

describe('pods of the chart', () => {
  let rendered: readonly Rendered[];
  let agent: PodSpec;
  beforeAll(async () => {
    rendered = await render();
    agent = podSpec(find(rendered, 'DaemonSet', 'weir-agent')) as PodSpec;
  });

  it('are known here', () => {
    expect(pods(rendered).map(([name]) => name)).toEqual([
      'DaemonSet/weir-agent',
      'Deployment/weir-operator',
      'Pod/weir-test',
      'Job/weir-uninstall',
      'Deployment/weir-test-server',
      'Deployment/weir-test-allowed',
      'Deployment/weir-test-denied',
    ]);
  });

  it('are never privileged, see no processes of the host, gain no rights, cannot write into their image', () => {
    for (const [, spec] of pods(rendered)) {
      expect(spec.hostPID ?? false).toBe(false);
      expect(spec.securityContext.seccompProfile).toEqual({ type: 'RuntimeDefault' });
      for (const { securityContext } of containers(spec)) {
        expect(securityContext.privileged ?? false).toBe(false);
        expect(securityContext).toMatchObject({ allowPrivilegeEscalation: false, readOnlyRootFilesystem: true });
        expect(securityContext.capabilities.drop).toEqual(['ALL']);
      }
    }
  });

  it('are not root and have no capability, except the agent', () => {
    for (const [name, spec] of pods(rendered)) {
      if (name === 'DaemonSet/weir-agent') continue;
      expect(spec.securityContext).toMatchObject({ runAsNonRoot: true, runAsUser: 65532 });
      for (const { securityContext } of containers(spec)) expect(securityContext.capabilities.add).toBeUndefined();
      expect((spec.volumes ?? []).filter(({ hostPath }) => hostPath !== undefined)).toEqual([]);
    }
  });

  it('agent and DNS proxy have four capabilities each, and the init container three', () => {
    const of = (list: readonly Container[] = []) =>
      Object.fromEntries(list.map(({ name, securityContext }) => [name, securityContext.capabilities.add]));
    expect(of(agent.containers)).toEqual({
      agent: ['BPF', 'NET_ADMIN', 'PERFMON', 'SYS_ADMIN'],
      'dns-proxy': ['BPF', 'NET_ADMIN', 'NET_BIND_SERVICE', 'NET_RAW'],
    });
    expect(of(agent.initContainers)).toEqual({ 'mount-bpffs': ['SYS_ADMIN', 'SYS_CHROOT', 'SYS_PTRACE'] });
  });

  it('each capability has its reason in the text beside it', async () => {
    const text = await template(['--set', 'crds.install=false']);
    const lines = text.split('\n').filter((line) => /^ +- [A-Z]+(_[A-Z]+)*( |$)/.test(line));
    expect(lines).toHaveLength(11);
    for (const line of lines) expect(line).toMatch(/^ +- [A-Z_]+ # .{20,}/);
  });

  it('the agent sees these folders of its node and writes no others', () => {
    const host = new Map(
      (agent.volumes ?? []).flatMap(({ name, hostPath }) => (hostPath ? [[name, hostPath.path]] : [])),
    );
    const mounted = agent.containers[0]?.volumeMounts?.flatMap(({ name, mountPath, mountPropagation }) =>
      host.has(name) ? [[host.get(name), mountPath, mountPropagation]] : [],
    );
    expect(mounted).toEqual([
      ['/sys/fs/bpf', '/sys/fs/bpf', 'HostToContainer'],
      ['/var/run/weir', '/var/run/weir', undefined],
      ['/var/run/netns', '/var/run/netns', 'HostToContainer'],
      ['/proc/sys/net', '/host/proc/sys/net', undefined],
      ['/sys/fs/cgroup', '/host/cgroup', 'HostToContainer'],
      ['/opt/cni/bin', '/opt/cni/bin', undefined],
      ['/etc/cni/net.d', '/etc/cni/net.d', undefined],
    ]);
    expect(agent.containers[0]?.volumeMounts).toContainEqual(
      expect.objectContaining({ name: 'cgroup', readOnly: true }),
    );
    expect(agent.containers[1]?.volumeMounts).toEqual([
      { name: 'bpffs', mountPath: '/sys/fs/bpf', mountPropagation: 'HostToContainer' },
      { name: 'run', mountPath: '/var/run/weir' },
    ]);
    expect(agent.initContainers?.[0]?.volumeMounts).toEqual([
      { name: 'host-proc', mountPath: '/host/proc', readOnly: true },
      { name: 'bpffs', mountPath: '/sys/fs/bpf', mountPropagation: 'HostToContainer' },
    ]);
  });

  it('every mount has its volume and every volume its mount, whatever is set', async () => {
    for (const flags of [
      [],
      ['--set', 'cni.install=false,agent.mountBpffs=false'],
      ['--set', 'metrics.secure.enabled=true'],
      ['--set', 'dnsProxy.enabled=false'],
    ]) {
      for (const [, spec] of pods(await render(flags))) {
        const mounts = new Set(containers(spec).flatMap((each) => (each.volumeMounts ?? []).map(({ name }) => name)));
        expect([...mounts].sort()).toEqual((spec.volumes ?? []).map(({ name }) => name).sort());
      }
    }
  });

  it('AppArmor is off for the pod of the agent alone, by field or, before Kubernetes 1.30, by annotation', async () => {
    expect(containers(agent).map(({ securityContext }) => securityContext.appArmorProfile?.type)).toEqual([
      'Unconfined',
      'Unconfined',
      'Unconfined',
    ]);
    const old = await template(['--kube-version', '1.29.0']);
    expect(old).not.toContain('appArmorProfile');
    expect(old).toContain('container.apparmor.security.beta.kubernetes.io/agent: unconfined\n');
    expect(old).toContain('container.apparmor.security.beta.kubernetes.io/dns-proxy: unconfined\n');
    expect(old).toContain('container.apparmor.security.beta.kubernetes.io/mount-bpffs: unconfined');
  });

  it.each([
    ['agent', 'DaemonSet'],
    ['operator', 'Deployment'],
  ] as const)(
    'profiles of the %s are those of its values, by field or, AppArmor before Kubernetes 1.30, by annotation',
    async (name, kind) => {
      const set = (values: string) => ['--set', values.replaceAll('@', `${name}.`)];
      const context = async (flags: readonly string[]) => {
        const { containers: all } = podSpec(find(await render(flags), kind, `weir-${name}`)) as PodSpec;
        return all.find((each) => each.name === name)?.securityContext;
      };
      const usual = await context([]);
      expect(usual?.seccompProfile).toEqual({ type: 'RuntimeDefault' });
      expect(usual?.appArmorProfile).toEqual(name === 'agent' ? { type: 'Unconfined' } : undefined);
      const seccomp = set('@seccompProfile.type=Localhost,@seccompProfile.localhostProfile=weir/x.json');
      const appArmor = set('@appArmorProfile.type=Localhost,@appArmorProfile.localhostProfile=x');
      expect(await context([...seccomp, ...appArmor])).toMatchObject({
        seccompProfile: { type: 'Localhost', localhostProfile: 'weir/x.json' },
        appArmorProfile: { type: 'Localhost', localhostProfile: 'x' },
      });
      const old = await template([...appArmor, '--kube-version', '1.29.0']);
      expect(old).not.toContain('appArmorProfile');
      expect(old).toContain(`container.apparmor.security.beta.kubernetes.io/${name}: localhost/x\n`);
      for (const kindOf of ['seccompProfile', 'appArmorProfile'])
        await expect(template(set(`@${kindOf}.type=Localhost`))).rejects.toThrow(`/${name}/${kindOf}/localhostProfile`);
    },
  );

  it('the DNS proxy has the profiles of the agent', async () => {
    const profiles = [
      'agent.seccompProfile.type=Localhost,agent.seccompProfile.localhostProfile=weir/x.json',
      'agent.appArmorProfile.type=Localhost,agent.appArmorProfile.localhostProfile=x',
    ];
    const some = await render(['--set', profiles.join(',')]);
    expect(podSpec(find(some, 'DaemonSet', 'weir-agent'))?.containers[1]?.securityContext).toMatchObject({
      seccompProfile: { type: 'Localhost', localhostProfile: 'weir/x.json' },
      appArmorProfile: { type: 'Localhost', localhostProfile: 'x' },
    });
  });

  it('AppArmor profiles allow the capabilities that the chart gives', async () => {
    for (const [kind, name] of [
      ['DaemonSet', 'weir-agent'],
      ['Deployment', 'weir-operator'],
    ] as const) {
      const text = readFileSync(join(CHART, 'files/apparmor', name), 'utf8');
      const allowed = [...text.matchAll(/^ {2}capability ([a-z_]+),$/gm)].map(([, capability = '']) =>
        capability.toUpperCase(),
      );
      const given = new Set(
        podSpec(find(rendered, kind, name))?.containers.flatMap((each) => each.securityContext.capabilities.add ?? []),
      );
      expect([name, ...allowed]).toEqual([name, ...[...given].sort()]);
      expect(text).toContain(`\nprofile ${name} `);
      expect(text.split('{')).toHaveLength(text.split('}').length);
    }
  });

  it.each(['weir-agent', 'weir-operator'])(
    'AppArmor profile %s compiles, and one with a slip in it does not',
    (name) => {
      const profile = readFileSync(join(CHART, 'files/apparmor', name), 'utf8');
      // Neither loads it nor writes to a cache.
      const compile = (input: string) =>
        spawnSync('apparmor_parser', ['--skip-kernel-load', '--skip-cache'], { input, encoding: 'utf8' });
      const { status, stderr } = compile(profile);
      expect([status, stderr]).toEqual([0, expect.not.stringContaining('error')]);
      expect(compile(profile.replace('deny mount,', 'deny mounts,')).status).not.toBe(0);
    },
  );

  it('probes ask where the program listens: the loopback, or the address of the node when metrics are there without TLS', async () => {
    const secured = 'metrics.secure.enabled=true,metrics.expose=true';
    for (const [flags, host, listen, variable] of [
      [[], '127.0.0.1', '--health-address=127.0.0.1:', false],
      [['--set', 'metrics.expose=true'], undefined, '--health-address=[$(WEIR_HOST_IP)]:', true],
      [['--set', secured], '127.0.0.1', '--health-address=127.0.0.1:', true],
    ] as const) {
      const some = await render(flags);
      for (const [kind, name] of [
        ['DaemonSet', 'weir-agent'],
        ['Deployment', 'weir-operator'],
      ] as const) {
        const program = podSpec(find(some, kind, name))?.containers[0];
        const probes = [program?.livenessProbe, program?.readinessProbe].map((probe) => probe?.httpGet);
        const port = probes[0]?.port;
        expect(program?.args).toContain(`${listen}${port}`);
        expect(probes).toEqual(['/healthz', '/readyz'].map((path) => ({ ...(host ? { host } : {}), path, port })));
        expect(program?.env?.some(({ name: of }) => of === 'WEIR_HOST_IP')).toBe(variable);
      }
    }
  });

  it('metrics that are secured are at the address of the node by TLS only, and a missing Secret keeps no pod from starting', async () => {
    const some = await render(['--set', 'metrics.secure.enabled=true,metrics.secure.certificateSecret=cert']);
    for (const [kind, name] of [
      ['DaemonSet', 'weir-agent'],
      ['Deployment', 'weir-operator'],
    ] as const) {
      const spec = podSpec(find(some, kind, name));
      const [program] = spec?.containers ?? [];
      const port = program?.livenessProbe?.httpGet.port;
      expect(program?.args?.filter((arg) => arg.includes('WEIR_HOST_IP'))).toEqual([
        `--metrics-address=[$(WEIR_HOST_IP)]:${port}`,
      ]);
      expect(program?.args).toContain('--metrics-cert-path=/etc/weir/metrics');
      expect(program?.volumeMounts).toContainEqual({
        name: 'metrics-certificate',
        mountPath: '/etc/weir/metrics',
        readOnly: true,
      });
      expect(spec?.volumes?.find((volume) => volume.name === 'metrics-certificate')).toMatchObject({
        secret: { secretName: 'cert', optional: true },
      });
    }
  });
});
