import { join } from 'node:path';
import type { Family } from '@weir/net';
import { codeOf, messageOf } from '@weir/process/errors';
import { inNetns } from 'libbpf-ts';
import { type Settings, settings } from '../host/setting.ts';
import { CNI_CODE, CniError } from './errors.ts';

const WRITABLE = "name the node's writable /proc/sys by --proc-sys (a container's own is read-only)";
/** Settings of the node's end of a pair that are off: no pod gives its node a route or an address, and none is sent another way. */
const OFF = ['ipv6/*/accept_ra', 'ipv6/*/accept_redirects', 'ipv4/*/accept_redirects', 'ipv4/*/send_redirects'];
const FORWARDING: Readonly<Record<Family, string>> = { 4: 'ipv4/ip_forward', 6: 'ipv6/conf/all/forwarding' };

/** What pods need of /proc/sys: on the node, at the node's end of each pair, and in the pod. */
export class NodeSettings {
  readonly #procSys: string;
  readonly #settings: Settings;

  /** `procSys`: where the node's /proc/sys can be written. */
  constructor(procSys: string, of: Settings = settings) {
    this.#procSys = procSys;
    this.#settings = of;
  }

  /**
   * Turns a family's forwarding on; whether it was off.
   * @param uplinks names of the interfaces that may hear routers: a node that forwards IPv6 would forget what it learnt from them
   * @throws CniError when it is off and cannot be turned on
   */
  async forward(family: Family, uplinks: () => Promise<readonly string[]>): Promise<boolean> {
    const path = this.#path(FORWARDING[family]);
    try {
      if (this.#settings.get(path) === '1') return false;
      if (family === 6) for (const name of await uplinks()) this.#keepHearing(name);
      return this.#settings.set(path, '1');
    } catch (error) {
      const key = `net.${FORWARDING[family].replaceAll('/', '.')}`;
      // The agent does not start without: its last line is all that is read.
      throw new CniError(
        CNI_CODE.network,
        `cannot turn on IPv${family} forwarding (${path}): ${messageOf(error)}; run "sysctl -w ${key}=1" on the node, or ${WRITABLE}`,
        '',
        { cause: error },
      );
    }
  }

  /** accept_ra 1 is "unless this node forwards", 2 is always. */
  #keepHearing(name: string): void {
    const path = this.#path(`ipv6/conf/${name}/accept_ra`);
    try {
      if (this.#settings.get(path) === '1') this.#settings.set(path, '2');
    } catch (error) {
      if (codeOf(error) !== 'ENOENT') throw error;
    }
  }

  /** @throws CniError when a setting is on and cannot be turned off */
  harden(hostName: string): void {
    for (const name of OFF) {
      const path = this.#path(name.replace('*', `conf/${hostName}`));
      try {
        this.#settings.set(path, '0');
      } catch (error) {
        // The interface is gone, or has no IPv6, as where its MTU is below 1280.
        if (codeOf(error) === 'ENOENT') continue;
        throw new CniError(CNI_CODE.network, `cannot turn off ${path}: ${messageOf(error)}; ${WRITABLE}`, '', {
          cause: error,
        });
      }
    }
  }

  /** Lets an interface of the node have IPv6, whatever new ones have by default. @throws CniError */
  admitIPv6(hostName: string): void {
    this.#write(this.#settings, `ipv6/conf/${hostName}/disable_ipv6`, '0');
  }

  /** The same in a pod, which takes its routes from nobody else. @throws CniError */
  admitIPv6InPod(netns: string, podName: string): void {
    inNetns(netns, () => {
      for (const name of ['lo', podName]) this.#write(settings, `ipv6/conf/${name}/disable_ipv6`, '0');
      this.#write(settings, `ipv6/conf/${podName}/accept_ra`, '0');
    });
  }

  #write(to: Settings, name: string, value: string): void {
    const path = this.#path(name);
    try {
      to.set(path, value);
    } catch (error) {
      const why =
        codeOf(error) === 'ENOENT'
          ? 'the interface has no IPv6, as where its MTU is below 1280 or the kernel has none'
          : `${messageOf(error)}; ${WRITABLE}`;
      throw new CniError(CNI_CODE.network, `cannot set ${path} to ${value}: ${why}`, '', { cause: error });
    }
  }

  #path(name: string): string {
    return join(this.#procSys, 'net', name);
  }
}
