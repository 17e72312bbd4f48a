/** Images as they are made without a Docker engine: what is in them, that it runs, and that the Dockerfiles start them alike. */
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { load } from 'js-yaml';
import { type BuiltImage, buildImages } from '../scripts/images/build.ts';
import { IMAGE_NAMES, type ImageName, imageSpec } from '../scripts/images/catalog.ts';
import { ImageSizeError, isElf, measure, walk } from '../scripts/images/rootfs.ts';
import { imageSbom } from '../scripts/images/sbom.ts';
import { attempt, ROOT, run } from './cluster/run.ts';

interface Config {
  readonly User: string;
  readonly Env: readonly string[];
  readonly Entrypoint: readonly string[];
  readonly WorkingDir: string;
}
interface Opened {
  readonly built: BuiltImage;
  /** The unpacked root file system: all layers, one over the other. */
  readonly root: string;
  readonly config: Config;
  readonly layers: readonly string[];
  readonly reference: string | undefined;
}

let folder = '';
const images = new Map<ImageName, Opened>();
const image = (name: ImageName): Opened => {
  const found = images.get(name);
  if (found === undefined) throw new Error(`${name} was not opened`);
  return found;
};
const json = <T>(path: string): T => JSON.parse(readFileSync(path, 'utf8')) as T;
const digest = (path: string): string => createHash('sha256').update(readFileSync(path)).digest('hex');

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'weir-images-'));
  for (const built of await buildImages(IMAGE_NAMES, { out: join(folder, 'out') }))
    images.set(built.name, await open(built));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** Reads an archive as a container runtime does. */
async function open(built: BuiltImage): Promise<Opened> {
  const layout = join(folder, `${built.name}-layout`);
  mkdirSync(layout);
  await run('tar', ['-C', layout, '-xf', built.path]);
  const blob = (name: string): string => join(layout, 'blobs', name.replace(':', '/'));
  const index = json<{
    manifests: readonly { readonly digest: string; readonly annotations: Readonly<Record<string, string>> }[];
  }>(join(layout, 'index.json'));
  const manifest = json<{
    readonly config: { readonly digest: string };
    readonly layers: readonly { readonly digest: string; readonly size: number }[];
  }>(blob(index.manifests[0]?.digest ?? ''));
  const root = join(folder, built.name);
  mkdirSync(root, { mode: 0o755 });
  for (const layer of manifest.layers) {
    expect(statSync(blob(layer.digest)).size).toBe(layer.size);
    await run('tar', ['-C', root, '--preserve-permissions', '--numeric-owner', '-xf', blob(layer.digest)]);
  }
  const config = json<{ readonly config: Config; readonly rootfs: { readonly diff_ids: readonly string[] } }>(
    blob(manifest.config.digest),
  );
  expect(config.rootfs.diff_ids).toEqual(manifest.layers.map((layer) => layer.digest));
  for (const name of readdirSync(join(layout, 'blobs/sha256')))
    expect([name, digest(join(layout, 'blobs/sha256', name))]).toEqual([name, name]);
  rmSync(layout, { recursive: true });
  return {
    built,
    root,
    config: config.config,
    layers: manifest.layers.map((layer) => layer.digest),
    reference: index.manifests[0]?.annotations['io.containerd.image.name'],
  };
}

/** By its path: nothing is found by name in an empty environment. */
const CHROOT = '/usr/sbin/chroot';

/** In the image and nowhere else: its files, no environment. */
const inside = (name: ImageName, ...command: readonly string[]) =>
  attempt('env', ['-i', CHROOT, image(name).root, ...command]);

describe('what is in an image', () => {
  it.each(IMAGE_NAMES)('%s: a build from nothing gives the same bytes', async (name) => {
    const store = join(folder, 'store');
    const [again] = await buildImages([name], { out: join(folder, 'again'), store });
    const [kept] = await buildImages([name], { out: join(folder, 'out'), store: join(ROOT, '.cache/images/store') });
    expect(again).toMatchObject({ built: true });
    expect(kept).toMatchObject({ built: false });
    expect(digest(again?.path ?? '')).toBe(digest(kept?.path ?? ''));
    rmSync(join(folder, 'again'), { recursive: true });
  });

  it('all three share their first layer', () => {
    expect(new Set(IMAGE_NAMES.map((name) => image(name).layers[0])).size).toBe(1);
    expect(IMAGE_NAMES.map((name) => image(name).layers.length)).toEqual([2, 2, 2]);
  });

  it.each(IMAGE_NAMES)('%s: the size that is told is that of its files, and within the limit', (name) => {
    const { built, root } = image(name);
    expect(measure(name, root)).toBe(built.bytes);
    expect(built.bytes).toBeLessThanOrEqual(imageSpec(name).limit);
  });

  it('the limits are those that were promised', () => {
    expect([imageSpec('operator').limit, imageSpec('node-agent').limit]).toEqual([120e6, 150e6]);
  });

  it('an image over its limit is refused, and its largest file named', () => {
    const large = join(folder, 'large');
    mkdirSync(large);
    writeFileSync(join(large, 'ballast'), '');
    truncateSync(join(large, 'ballast'), 120e6 + 1);
    expect(() => measure('operator', large)).toThrow(ImageSizeError);
    expect(() => measure('operator', large)).toThrow('/ballast 120.0 MB');
  });

  it.each(IMAGE_NAMES)('%s: all is root’s, nothing is setuid, and only /tmp may be written by others', (name) => {
    const { root } = image(name);
    const odd = [...walk(root)].flatMap(({ path, kind, mode }) => {
      const { uid, gid } = lstatSync(path);
      const sound = kind === 'link' || (mode & 0o7022) === 0;
      return sound && uid === 0 && gid === 0 ? [] : [`${path.slice(root.length)} ${mode.toString(8)} ${uid}:${gid}`];
    });
    expect(odd).toEqual(['/tmp 1777 0:0']);
  });

  it('programs are these and no more: no shell, no compiler, no package manager', () => {
    const programs = (name: ImageName): readonly string[] => {
      const { root } = image(name);
      return [...walk(root)]
        .filter(({ path, kind, mode }) => kind === 'file' && (mode & 0o111) !== 0 && !/\.so[.\d]*$/.test(path))
        .map(({ path }) => path.slice(root.length));
    };
    expect(programs('operator')).toEqual(['/usr/bin/node']);
    expect(programs('node-agent')).toEqual([
      '/app/weir-cni',
      '/usr/bin/ip',
      '/usr/bin/node',
      '/usr/bin/nsenter',
      '/usr/local/bin/weir',
    ]);
    expect(programs('pod')).toEqual(['/bin/busybox', '/usr/bin/node']);
  });

  it.each(IMAGE_NAMES)('%s: every library that a program or library needs is in it', async (name) => {
    const { root } = image(name);
    const dynamic: string[] = [];
    for (const { path, kind } of walk(root)) {
      if (kind !== 'file' || !isElf(path)) continue;
      const { stdout } = await run('readelf', ['-d', path]);
      if (stdout.includes('(NEEDED)')) dynamic.push(path.slice(root.length));
    }
    expect(dynamic).toContain('/usr/bin/node');
    const loader = ['/lib64/ld-linux-x86-64.so.2', '/lib/ld-linux-aarch64.so.1'].find((path) =>
      existsSync(join(root, path)),
    );
    for (const file of dynamic) {
      const { code, stdout, stderr } = await inside(name, loader ?? '', '--list', file);
      expect([file, code, stderr, stdout.includes('not found')]).toEqual([file, 0, '', false]);
    }
  });
});

describe('a bill of materials', () => {
  it.each(IMAGE_NAMES)(
    '%s: names each file that comes from the build machine, byte for byte, and its package',
    (name) => {
      const { root } = image(name);
      const { components } = imageSbom(name);
      const listed = components.flatMap((component) =>
        [component, ...(component.components ?? [])].filter(({ type }) => type === 'file'),
      );
      const present = [...walk(root)]
        .filter(({ path, kind }) => kind === 'file' && isElf(path))
        .map(({ path }) => path.slice(root.length))
        // Ours, and what npm lists.
        .filter((path) => !path.startsWith('/app/') && path !== '/usr/bin/node');
      expect(listed.map((file) => file.name).sort()).toEqual(present.sort());
      expect(listed.map((file) => file.hashes?.[0]?.content)).toEqual(
        listed.map((file) => digest(join(root, file.name))),
      );
      expect(components.filter(({ type }) => type === 'file')).toEqual([]);
      const debian = components.flatMap(({ purl }) => /^pkg:deb\/[a-z]+\/([^@]+)@/.exec(purl ?? '')?.[1] ?? []);
      expect(debian).toEqual(
        expect.arrayContaining(name === 'node-agent' ? ['libc6', 'libbpf1', 'iproute2', 'libc6-dev'] : ['libc6']),
      );
    },
  );
});

describe('how an image starts', () => {
  it.each(['operator', 'node-agent'] as const)('%s: the Dockerfile says the same as the archive', (name) => {
    const text = readFileSync(join(ROOT, name, 'Dockerfile'), 'utf8');
    const final = text.slice(text.lastIndexOf('\nFROM '));
    const all = (instruction: string): string[] =>
      [...final.matchAll(new RegExp(`^${instruction} (.*)$`, 'gm'))].map(([, value]) => value ?? '');
    const config: Config = {
      User: all('USER').join(),
      Env: all('ENV').flatMap((line) => line.split(' ')),
      Entrypoint: JSON.parse(all('ENTRYPOINT').join()) as string[],
      WorkingDir: all('WORKDIR').join(),
    };
    expect(image(name).config).toEqual(config);
    expect(all('FROM')).toEqual(['scratch']);
    expect(all('COPY')).toEqual(['--from=build /rootfs/ /']);
    expect(all('RUN')).toEqual([]);
    expect(text).toContain(`scripts/images.ts --rootfs ${name} /rootfs`);
  });

  it('names and tags are those of the chart', () => {
    const values = load(readFileSync(join(ROOT, 'charts/weir/values.yaml'), 'utf8')) as Readonly<
      Record<'operator' | 'agent', { readonly image: { readonly repository: string } }>
    >;
    const chart = load(readFileSync(join(ROOT, 'charts/weir/Chart.yaml'), 'utf8')) as { readonly appVersion: string };
    expect(image('operator').reference).toBe(`${values.operator.image.repository}:${chart.appVersion}`);
    expect(image('node-agent').reference).toBe(`${values.agent.image.repository}:${chart.appVersion}`);
    expect(image('pod').reference).toBe('localhost/weir-pod:1');
  });

  it('operator and agent are not started as the same user: the operator as nobody’s', () => {
    expect([image('operator').config.User, image('node-agent').config.User]).toEqual(['65532', '0']);
  });

  it('each program runs with nothing but its image', async () => {
    const version = json<{ readonly version: string }>(join(ROOT, 'package.json')).version;
    expect(await inside('operator', '/usr/bin/node', '/app/operator.mjs', '--help')).toMatchObject({
      code: 0,
      stderr: '',
      stdout: expect.stringContaining('--leader-elect'),
    });
    expect(await inside('node-agent', '/usr/bin/node', '/app/agent.mjs', '--version')).toEqual({
      code: 0,
      stderr: '',
      stdout: `${version}\n`,
    });
    expect(await inside('node-agent', '/usr/local/bin/weir', 'version')).toMatchObject({
      code: 0,
      stderr: '',
      stdout: expect.stringContaining(`Client:  ${version}`),
    });
    expect(await inside('node-agent', '/usr/local/bin/weir', 'bogus')).toMatchObject({ code: 2 });
    for (const program of ['ip', 'nsenter'])
      expect(await inside('node-agent', `/usr/bin/${program}`, '-V')).toMatchObject({ code: 0 });
  });

  it('the agent loads its datapath, serves its API and installs the plugin, all from its image', async () => {
    const { root, config } = image('node-agent');
    for (const path of ['proc', 'sys']) mkdirSync(join(root, path));
    const agent = startAlone(
      `mount -t proc proc ${root}/proc && mount -t sysfs sysfs ${root}/sys && mount -t bpf bpf ${root}/sys/fs/bpf`,
      root,
      config,
      ['--no-kubernetes', '--node-name=n1', '--pod-cidr=10.99.0.0/24', '--cni-install=/opt/cni/bin'],
    );
    try {
      await agent.said('agent is running');
      const status = await inside('node-agent', '/usr/local/bin/weir', 'status');
      expect(status).toMatchObject({ code: 0, stderr: '', stdout: expect.stringMatching(/^Node: +n1 /m) });
      const plugin = join(root, 'opt/cni/bin/weir-cni');
      expect(digest(plugin)).toBe(digest(join(root, 'app/weir-cni')));
      const answer = await run(plugin, [], { stdin: '{"cniVersion":"1.0.0"}', env: { CNI_COMMAND: 'VERSION' } });
      expect(JSON.parse(answer.stdout)).toMatchObject({ supportedVersions: expect.arrayContaining(['1.0.0']) });
    } finally {
      await agent.stop();
    }
  });

  it('a test pod serves what its environment says, and has a shell', async () => {
    const { root, config } = image('pod');
    const pod = startAlone(
      `ip link set lo up && mkdir ${root}/dev && mount --bind /dev ${root}/dev`,
      root,
      { ...config, Entrypoint: ['/bin/sh', '-c'], Env: [...config.Env, 'WEIR_POD_NAME=p1', 'WEIR_POD_TCP=8080'] },
      [`${config.Entrypoint.join(' ')} & until wget -q -O - http://127.0.0.1:8080/; do sleep 0.1; done; wait`],
    );
    try {
      await pod.said('p1');
    } finally {
      await pod.stop();
    }
  });
});

interface Alone {
  /** Resolves when the output has a line with this text; rejects when the program ends before. */
  said(text: string): Promise<void>;
  stop(): Promise<void>;
}

/** Starts an image as a runtime does, in namespaces of its own (mounts, processes, network) that end with it. */
function startAlone(prepare: string, root: string, config: Config, args: readonly string[]): Alone {
  const child = spawn(
    'unshare',
    [
      ...['--mount', '--net', '--pid', '--fork', '--kill-child', 'sh', '-ec'],
      `${prepare} && exec env -i "$@"`,
      ...['sh', ...config.Env, CHROOT, root, ...config.Entrypoint, ...args],
    ],
    { stdio: ['ignore', 'pipe', 'pipe'] },
  );
  const ended = new Promise<void>((resolve) => child.once('close', () => resolve()));
  const seen: string[] = [];
  let look = (): void => undefined;
  for (const stream of [child.stdout, child.stderr])
    createInterface({ input: stream }).on('line', (line) => {
      seen.push(line);
      look();
    });
  return {
    said: (text) =>
      new Promise((resolve, reject) => {
        look = () => {
          if (seen.some((line) => line.includes(text))) resolve();
        };
        look();
        void ended.then(() => reject(new Error(`ended without saying "${text}": ${seen.join('\n')}`)));
      }),
    stop: async () => {
      // unshare ignores softer signals; its child dies with it, and all of the namespace with that.
      child.kill('SIGKILL');
      await ended;
    },
  };
}

describe('the command', () => {
  const images = (...args: readonly string[]) =>
    attempt(process.execPath, [join(ROOT, 'scripts/images.ts'), ...args], { timeoutMs: 120_000 });

  it('prints name, size and limit of each image, and does not build what is built', async () => {
    const { code, stdout } = await images('operator', '--out', join(folder, 'named'));
    expect(code).toBe(0);
    expect(stdout).toMatch(
      /^localhost\/weir\/operator:\S+ [\d.]+ MB unpacked \(at most 120\.0 MB\) \S+operator\.tar [\d.]+ MB, unchanged\n$/,
    );
    expect(digest(join(folder, 'named/operator.tar'))).toBe(digest(image('operator').built.path));
    expect(json(join(folder, 'named/operator.sbom.json'))).toEqual(imageSbom('operator'));
  });

  it.each([
    [['agent'], 'there is no image "agent"'],
    [['--rootfs', 'operator'], '--rootfs takes one image and one folder'],
    [['--bogus'], '--bogus'],
  ])('%j is refused with the usage', async (args, complaint) => {
    const { code, stderr } = await images(...args);
    expect(code).toBe(2);
    expect(stderr).toContain(complaint);
    expect(stderr).toContain('usage:');
  });

  it('--rootfs makes exactly what the archive holds', async () => {
    const out = join(folder, 'rootfs');
    expect(await images('--rootfs', 'operator', out)).toMatchObject({ code: 0 });
    const list = (root: string) =>
      [...walk(root)].map(({ path, kind, mode, bytes }) => [
        path.slice(root.length),
        kind,
        mode,
        kind === 'file' ? digest(path) : bytes * (kind === 'link' ? 1 : 0),
      ]);
    const { root } = image('operator');
    expect(list(out)).toEqual(list(root));
    expect(await images('--rootfs', 'operator', out)).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('is not empty'),
    });
  });
});
