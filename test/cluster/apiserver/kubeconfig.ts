import { dump } from 'js-yaml';

/**
 * A kubeconfig for a plain HTTP server without authentication. It says `insecure-skip-tls-verify` because
 * @kubernetes/client-node refuses plain HTTP without it.
 * @throws Error when there is no URL: nothing listens yet and none was given.
 */
export function kubeconfig(url: string | undefined, cluster: string): string {
  if (url === undefined) throw new Error('kubeconfig() needs a URL: call listen() first, or pass the URL');
  return dump({
    apiVersion: 'v1',
    kind: 'Config',
    clusters: [{ name: cluster, cluster: { server: url, 'insecure-skip-tls-verify': true } }],
    users: [{ name: cluster, user: {} }],
    contexts: [{ name: cluster, context: { cluster, user: cluster, namespace: 'default' } }],
    'current-context': cluster,
  });
}
