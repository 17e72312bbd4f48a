/** The programs of Services, and where they run. */
import { join } from 'node:path';
import type { Hook, ObjectSource } from '@weir/bpf';

export const SOURCE: ObjectSource = { name: 'services', source: join(import.meta.dirname, 'bpf/services.c') };

/** At pods' interfaces. */
export const POD_HOOKS: readonly Hook[] = [
  { at: 'from-pod', program: 'svc_from_pod' },
  { at: 'to-pod', program: 'svc_to_pod' },
];

/** Need the node's root cgroup. */
export const SOCKET_HOOKS: readonly Hook[] = [
  { at: 'cgroup', program: 'svc_connect4', attach: 'connect4' },
  { at: 'cgroup', program: 'svc_connect6', attach: 'connect6' },
  { at: 'cgroup', program: 'svc_sendmsg4', attach: 'sendmsg4' },
  { at: 'cgroup', program: 'svc_sendmsg6', attach: 'sendmsg6' },
  { at: 'cgroup', program: 'svc_recvmsg4', attach: 'recvmsg4' },
  { at: 'cgroup', program: 'svc_recvmsg6', attach: 'recvmsg6' },
  { at: 'cgroup', program: 'svc_peername4', attach: 'getpeername4' },
  { at: 'cgroup', program: 'svc_peername6', attach: 'getpeername6' },
];

export const UPLINK_SOURCE: ObjectSource = { name: 'svc_uplink', source: join(import.meta.dirname, 'bpf/uplink.c') };

/** At the node's interfaces that lead out. */
export function uplinkHooks(interfaces: () => readonly number[]): readonly Hook[] {
  return [
    { at: 'interfaces', program: 'svc_from_outside', direction: 'ingress', interfaces },
    { at: 'interfaces', program: 'svc_to_outside', direction: 'egress', interfaces },
  ];
}
