/**
 * From inputs to what the kernel is to have (slots, ipcache, endpoint states). Knows nothing of BPF.
 * Guarantees: deterministic but for numbers given out; unknown is never more allowed than known; what is in force stays in
 * force until its successor is complete, and true of the world as it is meanwhile, whichever input lags.
 *
 * The way of an input row to the plan (`AllDerivers` wires it, and `Model` asks each step in this order):
 *   inputs            a snapshot of the input tables; passes each changed row to the parts that depend on it
 *   policies, in-force    which generation of each policy is in force; which of its rules select which identity
 *   identities, remote-endpoints, local-endpoints    which identities are known; the identity of each pod of the slices, and of
 *                                                    each of this node's endpoints
 *   peer-port-names   which number each identity gives a port name
 *   peer-set-views    who is in each peer set that rules in use name: labels say so, lists only where labels are not known
 *   shape, slots, slot-rows, classes, rows, endpoint-shapes    what an endpoint's rules come to; the slot that holds it,
 *                                                              brought up to date for the identities that changed (patched-map)
 *   ipcache, prefixes, addresses    the identity of each address
 *   endpoint-states   what each endpoint enforces, at which revision
 *   plan              what a round is to carry out
 * `numbers` gives out local numbers, `imported` writes the rows of rules imported on this node, `pace` makes breaks: between
 * two of them readers see a whole result of each part, old or new. Each part keeps what it has computed in tables of its
 * own (`working`). The core uses all of this; datapath/ and api/ only `contract`.
 */
export * from './contract.ts';
export type { EndpointIdentity } from './identities.ts';
export { ImportedRules, type ImportOptions } from './imported.ts';
export { Model, type ModelOptions } from './model.ts';
export { namingOf } from './naming.ts';
export { decodeNumbers, LocalNumbers, type NumbersState } from './numbers.ts';
export type { InUse, Missing } from './policies.ts';
