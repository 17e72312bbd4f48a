/** A real Kubernetes with Weir installed on it as a user does: images, chart, defaults. */
import { RealCluster, type RealClusterOptions, weirImages } from '../cluster/real/index.ts';

/** Starts a cluster and installs the chart with these values; `install: false` leaves that to the caller. */
export async function weirCluster(options: Omit<RealClusterOptions, 'images'> = {}): Promise<RealCluster> {
  return RealCluster.start({ install: {}, ...options, images: await weirImages() });
}
