/**
 * `node scripts/images.ts [operator|node-agent|pod ...] [--out FOLDER]`: images as files, without a Docker engine. All three when none
 * is named. Each `<name>.tar` is an OCI layout that `ctr -n k8s.io images import` takes; `<name>.sbom.json` beside it says what is in it.
 * `node scripts/images.ts --rootfs IMAGE FOLDER`: only the root file system of an image; the Dockerfiles' build stage.
 * Exit codes: 1 failure, 2 wrong arguments.
 */
import { statSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { buildImages, DEFAULT_OUT } from './images/build.ts';
import { IMAGE_NAMES, type ImageName, imageSpec } from './images/catalog.ts';
import { megabytes, rootfs } from './images/rootfs.ts';
import { imageSbom } from './images/sbom.ts';
import { writeSbom } from './sbom.ts';

const USAGE = `usage: node scripts/images.ts [${IMAGE_NAMES.join('|')} ...] [--out FOLDER]
       node scripts/images.ts --rootfs ${IMAGE_NAMES.join('|')} FOLDER`;

async function main(args: readonly string[]): Promise<number> {
  const parsed = read(args);
  if (typeof parsed === 'string') {
    console.error(`${parsed}\n${USAGE}`);
    return 2;
  }
  if (parsed.rootfs !== undefined) {
    const bytes = await rootfs(parsed.rootfs.name, parsed.rootfs.folder);
    console.log(
      `${parsed.rootfs.name} ${megabytes(bytes)} unpacked (at most ${megabytes(imageSpec(parsed.rootfs.name).limit)})`,
    );
    return 0;
  }
  for (const image of await buildImages(parsed.names, { out: parsed.out })) {
    writeSbom(imageSbom(image.name), join(parsed.out, `${image.name}.sbom.json`));
    const size = `${megabytes(image.bytes)} unpacked (at most ${megabytes(imageSpec(image.name).limit)})`;
    console.log(
      `${image.reference} ${size} ${image.path} ${megabytes(statSync(image.path).size)}${image.built ? '' : ', unchanged'}`,
    );
  }
  return 0;
}

type Request =
  | { readonly rootfs: { readonly name: ImageName; readonly folder: string } }
  | { readonly rootfs?: undefined; readonly names: readonly ImageName[]; readonly out: string };

/** The request, or what is wrong with the arguments. */
function read(args: readonly string[]): Request | string {
  let parsed: { readonly values: { readonly out?: string; readonly rootfs?: boolean }; readonly positionals: string[] };
  try {
    parsed = parseArgs({
      args: [...args],
      allowPositionals: true,
      options: { out: { type: 'string' }, rootfs: { type: 'boolean' } },
    });
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
  const { values, positionals } = parsed;
  if (values.rootfs === true) {
    const [name, folder, ...more] = positionals;
    if (name === undefined || folder === undefined || more.length > 0 || values.out !== undefined)
      return '--rootfs takes one image and one folder';
    return isImage(name) ? { rootfs: { name, folder: resolve(folder) } } : `there is no image "${name}"`;
  }
  const unknown = positionals.find((name) => !isImage(name));
  if (unknown !== undefined) return `there is no image "${unknown}"`;
  const names = positionals.filter(isImage);
  return { names: names.length === 0 ? IMAGE_NAMES : names, out: resolve(values.out ?? DEFAULT_OUT) };
}

function isImage(name: string): name is ImageName {
  return IMAGE_NAMES.some((known) => known === name);
}

try {
  process.exitCode = await main(process.argv.slice(2));
} catch (error) {
  const known = error instanceof Error && 'code' in error;
  console.error(`images: ${known ? error.message : error instanceof Error ? error.stack : String(error)}`);
  process.exitCode = 1;
}
