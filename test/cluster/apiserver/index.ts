/** An in-process Kubernetes API server: see types.ts for what it guarantees. Plain HTTP on loopback, no authentication but a secret in the URL. */
import type { Socket } from 'node:net';
import { Admission } from './admission.ts';
import { InProcessClient } from './client.ts';
import { Core } from './core.ts';
import { FaultInjector, RequestStats } from './faults.ts';
import { HttpFace } from './http.ts';
import { kubeconfig } from './kubeconfig.ts';
import { Service } from './service.ts';
import type { ApiServer, ApiServerOptions } from './types.ts';

export { ListenError, StatusError } from './errors.ts';
export type { Json, JsonObject } from './json.ts';
export type * from './types.ts';

const DEFAULT_HISTORY = 10_000;

/** @throws StatusError when one of `crds` is refused; its message names the field. */
export function createApiServer(options: ApiServerOptions = {}): ApiServer {
  const core = new Core(options.now ?? (() => new Date()), options.watchHistory ?? DEFAULT_HISTORY);
  for (const crd of options.crds ?? []) {
    core.createInternal('apiextensions.k8s.io', 'v1', 'customresourcedefinitions', '', crd);
  }
  const faults: FaultInjector = new FaultInjector(() => {
    core.store.expire();
    core.reads.forgetSnapshots();
  });
  const stats = new RequestStats(
    () => core.store.revision,
    () => faults.openWatches,
  );
  const admission = new Admission(core.store, options.serviceAddress ?? (() => undefined));
  const service = new Service(core, admission, faults, stats);
  const http = new HttpFace(service, core.protobuf, faults, stats);
  let firstUrl: string | undefined;
  return {
    listen: async (port = 0, host = '127.0.0.1', secret) => {
      const listening = await http.listen(port, host, secret);
      firstUrl ??= listening.url;
      return listening;
    },
    handleSocket: (socket: Socket) => http.handleSocket(socket),
    stop: () => http.stop(),
    kubeconfig: (url) => kubeconfig(url ?? firstUrl, options.clusterName ?? 'weir'),
    faults,
    client: new InProcessClient(service),
    stats,
  };
}
