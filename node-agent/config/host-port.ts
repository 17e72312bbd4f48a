import { InvalidArgumentError } from 'commander';

export interface HostPort {
  readonly host: string;
  readonly port: number;
}

/** Parses the value of a flag: `host:port`, `[v6]:port` or `:port` (all IPv4 addresses). */
export function hostPort(text: string): HostPort {
  const match = /^(?:\[([0-9a-f:.]+)\]|([^:[\]]*)):(\d{1,5})$/i.exec(text);
  const port = Number(match?.[3]);
  if (match === null || port > 65535)
    throw new InvalidArgumentError('It must be HOST:PORT, such as 127.0.0.1:9879 or [::1]:9879.');
  return { host: match[1] ?? (match[2] || '0.0.0.0'), port };
}
