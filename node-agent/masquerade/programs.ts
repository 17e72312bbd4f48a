/** The programs of masquerading, and where they run. */
import { join } from 'node:path';
import type { Hook, ObjectSource } from '@weir/bpf';

export const SOURCE: ObjectSource = { name: 'masquerade', source: join(import.meta.dirname, 'bpf/masquerade.c') };

export function hooksAt(interfaces: () => readonly number[]): readonly Hook[] {
  return [
    { at: 'interfaces', program: 'masq_out', direction: 'egress', interfaces },
    { at: 'interfaces', program: 'masq_in', direction: 'ingress', interfaces },
  ];
}
