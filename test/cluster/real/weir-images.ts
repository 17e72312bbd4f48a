/** The images of this checkout as tar files: built when their sources have changed, found built otherwise. */
import { buildImages } from '../../../scripts/images/build.ts';
import { IMAGE_NAMES, type ImageName } from '../../../scripts/images/catalog.ts';

/** @param names default: operator, node-agent and pod. */
export async function weirImages(names: readonly ImageName[] = IMAGE_NAMES): Promise<readonly string[]> {
  return (await buildImages(names)).map(({ path }) => path);
}
