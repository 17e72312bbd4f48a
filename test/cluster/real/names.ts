/** Names and addresses of a real cluster. Everything that it makes on the machine begins with `wr<id>`. */
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** The nodes' network; the same as the embedded cluster's, so that policies with CIDRs mean the same on both. */
const NODE_NET = '172.30.0';
const NODE_NET6 = 'fd00:172:30:';
/** The API server's address inside the cluster, port 6443. */
export const API_ADDRESS = `${NODE_NET}.1`;
export const API_ADDRESS6 = `${NODE_NET6}:1`;
export const API_PORT = 6443;
/** Address, on the nodes' network, of the namespace that holds the outside hosts: everybody's default route. */
export const OUTSIDE_GATEWAY = `${NODE_NET}.250`;
export const OUTSIDE_GATEWAY6 = `${NODE_NET6}:250`;
/** Of each family, IPv4 first: what pods and Services have one address of. */
export const POD_CIDRS = ['10.244.0.0/16', 'fd00:10:244::/48'] as const;
export const SERVICE_CIDRS = ['10.96.0.0/16', 'fd00:10:96::/112'] as const;
/** The Service `kubernetes`: the first address of the range. */
export const API_SERVICE = '10.96.0.1';
/** Nodes are numbered from 1, and their addresses with them. */
export const MAX_NODES = 200;

export const prefixOf = (id: string): string => `wr${id}`;
/** Short on purpose: paths of unix sockets begin with it. */
export const folderOf = (id: string): string => join(tmpdir(), prefixOf(id));
/** @returns the id in a name that `prefixOf` or `netnsOf` made. */
export const idOf = (name: string): string | undefined => /^wr([a-z0-9]{5})(?:-|$)/.exec(name)?.[1];
export const netnsOf = (id: string, part: string): string => `${prefixOf(id)}-${part}`;
export const nodeName = (number: number): string => `node-${number}`;
export const nodeAddress = (number: number): string => `${NODE_NET}.${10 + number}`;
export const nodeAddress6 = (number: number): string => `${NODE_NET6}:${10 + number}`;
