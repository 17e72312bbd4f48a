/**
 * CNI errors: the codes of the CNI specification (section "Error"), and ours from 100 on. A CNI runtime shows `msg` and `details`
 * to the user, so each says what failed and how to mend it.
 */
import { CommandError } from '../host/command.ts';

export const CNI_CODE = {
  incompatibleVersion: 1,
  unsupportedField: 2,
  unknownContainer: 3,
  invalidEnvironment: 4,
  io: 5,
  decode: 6,
  invalidConfig: 7,
  tryLater: 11,
  notAvailable: 50,
  network: 100,
  notEnforced: 101,
  addressesExhausted: 102,
  checkFailed: 103,
  addressConflict: 104,
} as const;

export type CniCode = (typeof CNI_CODE)[keyof typeof CNI_CODE];

/**
 * A CNI command failed. `cniCode` is the code that the container runtime sees; `details` says what to do.
 * @fix Do what the details say; kubelet tries again by itself.
 */
export class CniError extends Error {
  readonly code: string = 'ERR_WEIR_CNI';
  readonly cniCode: CniCode;
  readonly details: string;

  constructor(cniCode: CniCode, message: string, details = '', options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
    this.cniCode = cniCode;
    this.details = details;
  }
}

/**
 * All addresses of the node's pod CIDR are in use.
 * @fix Delete pods of this node, or give the node a larger pod CIDR.
 */
export class AddressesExhaustedError extends CniError {
  override readonly code = 'ERR_WEIR_CNI_ADDRESSES_EXHAUSTED';
  /** `taken`: by whom, in words. */
  constructor(cidr: string, total: bigint, taken: string) {
    super(
      CNI_CODE.addressesExhausted,
      `no free address in the node's pod CIDR ${cidr}: all ${total} are in use (${taken})`,
      'delete pods of this node, or give the node a larger pod CIDR',
    );
  }
}

/**
 * No address may be given yet: each that is free was a pod's a moment ago, or CiliumEndpointSlices still name it.
 * @fix Wait: kubelet tries again. A larger pod CIDR lets pods follow one another faster; a running operator removes old addresses from
 * slices.
 */
export class AddressesRestingError extends CniError {
  override readonly code = 'ERR_WEIR_CNI_ADDRESSES_RESTING';
  /** `taken`: by whom or why, in words. The last: whether some rest after a pod that is known, and whether slices name some. */
  constructor(
    cidr: string,
    total: bigint,
    taken: string,
    { rest, slice }: { readonly rest: boolean; readonly slice: boolean },
  ) {
    super(
      CNI_CODE.tryLater,
      `no address of the node's pod CIDR ${cidr} can be assigned yet: of its ${total}, ${taken}`,
      [
        'kubelet tries again by itself',
        ...(rest ? ['with a larger pod CIDR new pods get addresses sooner'] : []),
        ...(slice ? ['weir-operator must first remove the addresses that CiliumEndpointSlices still name'] : []),
      ].join('; '),
    );
  }
}

/**
 * The address that was chosen already has a route or an interface on the node.
 * @fix The next attempt takes another address. Find what makes routes within the pod CIDR, such as an earlier network plugin.
 */
export class AddressConflictError extends CniError {
  override readonly code = 'ERR_WEIR_CNI_ADDRESS_CONFLICT';
  readonly address: string;
  constructor(address: string, holder: string, options?: ErrorOptions) {
    super(
      CNI_CODE.addressConflict,
      `address ${address} is somebody else's: the node has a ${holder}`,
      'the next try takes another address. Find out what makes routes and interfaces within the pod CIDR beside Weir, such as a network plugin that was here before',
      options,
    );
    this.address = address;
  }
}

/**
 * The pod CIDR cannot serve pods.
 * @fix Use a prefix of at least 4 addresses, such as 10.1.0.0/24 or fd00:10:1::/64; not loopback, link-local, multicast or ::ffff:0:0/96.
 */
export class PodCidrError extends CniError {
  override readonly code = 'ERR_WEIR_CNI_POD_CIDR';
  constructor(cidr: string, why: string, options?: ErrorOptions) {
    super(
      CNI_CODE.invalidConfig,
      `pod CIDR "${cidr}" ${why}`,
      'use a prefix of at least 4 addresses, such as 10.1.0.0/24 or fd00:10:1::/64',
      options,
    );
  }
}

/** The error code for the runtime: a failed command is a failure of the network. Undefined: not an error for a runtime. */
export function cniErrorOf(error: unknown): CniError | undefined {
  if (error instanceof CommandError)
    return new CniError(CNI_CODE.network, error.message, error.input, { cause: error });
  return error instanceof CniError ? error : undefined;
}

/**
 * The CNI plugin `weir-cni` could not be compiled.
 * @fix Do what the message says: install a C compiler, or give a built file with `--cni-binary`.
 */
export class CniBuildError extends Error {
  readonly code = 'ERR_WEIR_CNI_BUILD';
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'CniBuildError';
  }
}

/**
 * The CNI plugin or its configuration could not be put in place.
 * @fix Do what the message says: the folders of `--cni-install` and `--cni-conf-dir` must be writable.
 */
export class CniInstallError extends Error {
  readonly code = 'ERR_WEIR_CNI_INSTALL';
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'CniInstallError';
  }
}
