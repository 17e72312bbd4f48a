/** Folders as layers and layers as one OCI layout archive. Equal input gives equal bytes: names sorted, no times, no owners. */
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { createReadStream, linkSync, mkdirSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { architecture, type ImageSpec } from './catalog.ts';

const EPOCH = '1970-01-01T00:00:00Z';

/** Writes a folder's content as a tar file. GNU tar: its options are all that reproducible archives need. */
export function tarFolder(folder: string, out: string): void {
  execFileSync(
    'tar',
    [
      '--create',
      `--file=${out}`,
      `--directory=${folder}`,
      '--format=gnu',
      '--sort=name',
      '--mtime=@0',
      '--owner=0',
      '--group=0',
      '--numeric-owner',
      ...readdirSync(folder).sort(),
    ],
    { env: { ...process.env, LC_ALL: 'C' }, stdio: 'pipe' },
  );
}

interface Descriptor {
  readonly mediaType: string;
  readonly digest: string;
  readonly size: number;
}

/** The configuration that a runtime reads: how the image starts. */
function ociConfig(spec: ImageSpec, diffIds: readonly string[]): object {
  return {
    created: EPOCH,
    architecture: architecture(),
    os: 'linux',
    config: { User: spec.user, Env: spec.env, Entrypoint: spec.entrypoint, WorkingDir: '/' },
    rootfs: { type: 'layers', diff_ids: diffIds },
    history: diffIds.map(() => ({ created: EPOCH, created_by: 'scripts/images.ts' })),
  };
}

/**
 * Writes the image as an OCI layout in one tar file, which `ctr images import` takes under the image's reference. Layers are not
 * compressed: such files go from one folder of a machine to another. `work` must be on the same file system as the layers.
 */
export async function writeImage(spec: ImageSpec, layers: readonly string[], work: string, out: string): Promise<void> {
  const blobs = join(work, 'blobs/sha256');
  mkdirSync(blobs, { recursive: true });
  const blob = (mediaType: string, content: object): Descriptor => {
    const bytes = Buffer.from(JSON.stringify(content));
    const digest = createHash('sha256').update(bytes).digest('hex');
    writeFileSync(join(blobs, digest), bytes);
    return { mediaType, digest: `sha256:${digest}`, size: bytes.length };
  };
  const descriptors: Descriptor[] = [];
  for (const layer of layers) {
    const digest = await sha256(layer);
    linkSync(layer, join(blobs, digest));
    descriptors.push({
      mediaType: 'application/vnd.oci.image.layer.v1.tar',
      digest: `sha256:${digest}`,
      size: statSync(layer).size,
    });
  }
  const config = blob(
    'application/vnd.oci.image.config.v1+json',
    ociConfig(
      spec,
      descriptors.map(({ digest }) => digest),
    ),
  );
  const mediaType = 'application/vnd.oci.image.manifest.v1+json';
  const manifest = blob(mediaType, { schemaVersion: 2, mediaType, config, layers: descriptors });
  const index = {
    schemaVersion: 2,
    mediaType: 'application/vnd.oci.image.index.v1+json',
    manifests: [
      {
        ...manifest,
        platform: { architecture: architecture(), os: 'linux' },
        annotations: {
          'io.containerd.image.name': spec.reference,
          'org.opencontainers.image.ref.name': spec.reference.slice(spec.reference.lastIndexOf(':') + 1),
        },
      },
    ],
  };
  writeFileSync(join(work, 'index.json'), JSON.stringify(index));
  writeFileSync(join(work, 'oci-layout'), JSON.stringify({ imageLayoutVersion: '1.0.0' }));
  tarFolder(work, out);
}

async function sha256(path: string): Promise<string> {
  const hash = createHash('sha256');
  await pipeline(createReadStream(path, { highWaterMark: 1 << 20 }), hash);
  return hash.digest('hex');
}
