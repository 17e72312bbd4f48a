export { buildCni } from './build.ts';
export * from './errors.ts';
export { removeCni } from './install.ts';
export { CniInstallation } from './installation.ts';
export { Ipam, podRange } from './ipam.ts';
export { vethName } from './names.ts';
export { PodNetwork } from './network.ts';
export { CniService, type CniServiceOptions } from './service.ts';
export * from './types.ts';
