/** The bill of materials of an image: npm's list, and the files of the build machine with their Debian packages and checksums. */
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { type Component, npmSbom, type Sbom } from '../sbom.ts';
import { type ImageName, imageSpec } from './catalog.ts';
import { type NativeFile, staticLibrary } from './native.ts';
import { nativeFiles } from './rootfs.ts';

/** Of the image as this machine builds it. */
export function imageSbom(name: ImageName): Sbom {
  const sbom = npmSbom(imageSpec(name).reference.replace(/:[^:]*$/, ''));
  const files = new Map([...nativeFiles('base'), ...nativeFiles(name)].map((file) => [file.target, file]));
  return { ...sbom, components: [...sbom.components, ...nativeComponents([...files.values()], linked(name))] };
}

/** Libraries that are not files of the image, because a program of it was linked with them. */
function linked(name: ImageName): readonly string[] {
  return name === 'node-agent' ? [staticLibrary('libc.a', 'libc6-dev')] : [];
}

function nativeComponents(files: readonly NativeFile[], libraries: readonly string[]): readonly Component[] {
  const packages = new Map<string, { readonly of: Component; readonly files: Component[] }>();
  const strays: Component[] = [];
  for (const file of files) {
    const component: Component = { type: 'file', name: file.target, hashes: [sha256(file.source)] };
    const owner = owned(file.source);
    if (owner === undefined) strays.push(component);
    else owner.files.push(component);
  }
  for (const library of libraries) owned(library);
  return [...[...packages.values()].map(({ of, files: parts }) => ({ ...of, components: parts })), ...strays];

  function owned(path: string): { readonly files: Component[] } | undefined {
    const of = debianPackage(path);
    if (of?.purl === undefined) return undefined;
    const known = packages.get(of.purl) ?? { of, files: [] };
    packages.set(of.purl, known);
    return known;
  }
}

function sha256(path: string): { readonly alg: string; readonly content: string } {
  return { alg: 'SHA-256', content: createHash('sha256').update(readFileSync(path)).digest('hex') };
}

/** Undefined where no installed package has the file. */
function debianPackage(path: string): Component | undefined {
  // dpkg knows some files by the path that they had before /bin and /lib became links to /usr.
  for (const known of [path, path.replace(/^\/usr\//, '/')]) {
    const found = dpkg(['--search', known])?.split(': ')[0]?.split(',')[0];
    if (found === undefined || found === '') continue;
    const status = dpkg(['--status', found]) ?? '';
    const [name, version, architecture] = ['Package', 'Version', 'Architecture'].map(
      (field) => new RegExp(`^${field}: (.+)$`, 'm').exec(status)?.[1],
    );
    if (name === undefined || version === undefined || architecture === undefined) continue;
    const purl = `pkg:deb/${distribution()}/${name}@${encodeURIComponent(version)}?arch=${architecture}`;
    return { 'bom-ref': purl, type: 'library', name, version, purl };
  }
  return undefined;
}

function dpkg(args: readonly string[]): string | undefined {
  const { status, stdout } = spawnSync('dpkg-query', args, { encoding: 'utf8' });
  return status === 0 ? stdout.trim() : undefined;
}

/** os-release(5): `debian`, `ubuntu`. */
function distribution(): string {
  const file = '/etc/os-release';
  const id = existsSync(file) ? /^ID="?([a-z0-9._-]+)"?$/m.exec(readFileSync(file, 'utf8'))?.[1] : undefined;
  return id ?? 'linux';
}
