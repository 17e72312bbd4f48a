/**
 * Bills of materials in CycloneDX 1.5: `npm run images` and `npm run packages` put one beside each file that they make. npm lists the production
 * dependencies of package-lock.json with their checksums; `images/sbom.ts` adds what an image takes from the machine that builds it. Time and serial
 * number are left out, so that equal inputs give equal bytes.
 */
import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { ROOT } from './images/catalog.ts';

export interface Component {
  readonly 'bom-ref'?: string;
  readonly type: string;
  readonly name: string;
  readonly version?: string;
  readonly purl?: string;
  readonly properties?: readonly { readonly name: string; readonly value: string }[];
  readonly hashes?: readonly { readonly alg: string; readonly content: string }[];
  /** What a package is made of, as far as it is in the image. */
  readonly components?: readonly Component[];
}

export interface Sbom {
  readonly bomFormat: 'CycloneDX';
  readonly specVersion: string;
  readonly metadata: { readonly component: Component };
  readonly components: readonly Component[];
  readonly dependencies: readonly { readonly ref: string; readonly dependsOn: readonly string[] }[];
}

/** What npm says of packages that only development needs. */
const DEVELOPMENT = 'cdx:npm:package:development';

/** The production dependencies of the checkout, or of one workspace, as npm has installed them on this machine. */
export function npmSbom(title: string, workspace?: string): Sbom {
  const args = ['sbom', '--sbom-format=cyclonedx', ...(workspace === undefined ? [] : [`--workspace=${workspace}`])];
  const output = execFileSync('npm', args, {
    cwd: ROOT,
    encoding: 'utf8',
    maxBuffer: 64 << 20,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const { serialNumber: _, ...listed } = JSON.parse(output) as Sbom & { readonly serialNumber?: string };
  const { timestamp: __, ...metadata } = listed.metadata as Sbom['metadata'] & { readonly timestamp?: string };
  // Not by --omit=dev: npm 11 then leaves out what production and development both need at second hand, such as semver.
  const components = listed.components.filter(
    ({ properties = [] }) => !properties.some(({ name }) => name === DEVELOPMENT),
  );
  const component = { ...metadata.component, name: title };
  const kept = new Set([component, ...components].map((each) => each['bom-ref']));
  const dependencies = listed.dependencies
    .filter(({ ref }) => kept.has(ref))
    .map(({ ref, dependsOn }) => ({ ref, dependsOn: dependsOn.filter((other) => kept.has(other)) }));
  return { ...listed, metadata: { ...metadata, component }, components, dependencies };
}

/** Writes a bill of materials as a file. */
export function writeSbom(sbom: Sbom, path: string): void {
  writeFileSync(path, `${JSON.stringify(sbom, null, 2)}\n`);
}
