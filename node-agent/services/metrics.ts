import type { Reader } from '@weir/statedb';
import { Gauge, type Registry } from 'prom-client';
import type { FaceSources } from './faces.ts';

/** weir_bpf_map_entries has how full all maps are. */
export function serviceMetrics({ read, frontends, realised, failures }: FaceSources, registry: Registry): void {
  const gauge = (name: string, help: string, value: (reader: Reader) => number): void => {
    new Gauge({
      name: `weir_agent_service_${name}`,
      help,
      registers: [registry],
      collect() {
        using snapshot = read();
        this.set(value(snapshot));
      },
    });
  };
  gauge('frontends', 'Ports of Services, by kind, scope and family, that the kernel is to translate.', (reader) =>
    reader.count(frontends),
  );
  gauge(
    'frontends_failing',
    'Of these, ports that the kernel does not have as wanted; the agent retries them.',
    () => failures().size,
  );
  gauge('backends', 'Addresses and ports that the kernel translates to, each once.', (reader) =>
    reader.count(realised.backends),
  );
}
