/**
 * `node scripts/crds.ts`: writes the CRDs into the chart. A test compares, so that the chart never lags behind. They are
 * files that `templates/crds.yaml` renders and not in the chart's folder `crds/`, which Helm installs but never upgrades.
 */
import { readdirSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { crdYaml } from '@weir/kube';

const folder = join(dirname(dirname(fileURLToPath(import.meta.url))), 'charts/weir/files/crds');
const files = crdYaml();
for (const name of readdirSync(folder)) if (files[name] === undefined) rmSync(join(folder, name));
for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text);
