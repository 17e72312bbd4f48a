/**
 * CNI errors: the codes of the CNI specification (section "Error"), and ours from 100 on. A CNI runtime shows `msg` and `details`
 * to the user, so each says what failed and how to mend it.
 */
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

/** Any CNI failure; `cniCode` is what the runtime sees. */
export class CniError extends Error {
  readonly code: string = 'CNI';
  readonly cniCode: CniCode;
  readonly details: string;

  constructor(cniCode: CniCode, message: string, details = '', options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
    this.cniCode = cniCode;
    this.details = details;
  }
}

/** The node's pod CIDR has no free address left. */
export class AddressesExhaustedError extends CniError {
  override readonly code = 'CNI_ADDRESSES_EXHAUSTED';
  /** `taken`: by whom, in words. */
  constructor(cidr: string, total: number, taken: string) {
    super(
      CNI_CODE.addressesExhausted,
      `no free address in the node's pod CIDR ${cidr}: all ${total} are in use (${taken})`,
      'delete pods of this node, or give the node a larger pod CIDR',
    );
  }
}

/** All that is free may not be given yet: it was another pod's a moment ago, or still is to the cluster. */
export class AddressesRestingError extends CniError {
  override readonly code = 'CNI_ADDRESSES_RESTING';
  /** `taken`: by whom or why, in words. The last: whether some rest after a pod that is known, and whether slices name some. */
  constructor(
    cidr: string,
    total: number,
    taken: string,
    { rest, slice }: { readonly rest: boolean; readonly slice: boolean },
  ) {
    super(
      CNI_CODE.tryLater,
      `no address of the node's pod CIDR ${cidr} may be given yet: of its ${total}, ${taken}`,
      [
        'kubelet tries again by itself',
        ...(rest ? ['a larger pod CIDR lets pods follow one another faster'] : []),
        ...(slice
          ? ['addresses that CiliumEndpointSlices still name are given once weir-operator has removed them from there']
          : []),
      ].join('; '),
    );
  }
}

/** Somebody else has the address. */
export class AddressConflictError extends CniError {
  override readonly code = 'CNI_ADDRESS_CONFLICT';
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

/** A pod CIDR that cannot serve pods. */
export class PodCidrError extends CniError {
  override readonly code = 'CNI_POD_CIDR';
  constructor(cidr: string, why: string, options?: ErrorOptions) {
    super(
      CNI_CODE.invalidConfig,
      `pod CIDR "${cidr}" ${why}`,
      'use an IPv4 prefix of at least 4 addresses, such as 10.1.0.0/24',
      options,
    );
  }
}

/** A system command (ip, nsenter) failed. */
export class CommandError extends CniError {
  override readonly code = 'CNI_COMMAND';
  readonly stderr: string;
  constructor(command: string, input: string, stderr: string, options?: ErrorOptions) {
    super(CNI_CODE.network, `${command} failed: ${stderr.trim() || 'no message'}`, input.trim(), options);
    this.stderr = stderr;
  }
}

/** The C shim could not be built. */
export class CniBuildError extends Error {
  readonly code = 'CNI_BUILD';
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'CniBuildError';
  }
}

/** `--cni-install` could not put its files in place. */
export class CniInstallError extends Error {
  readonly code = 'CNI_INSTALL';
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'CniInstallError';
  }
}
