/**
 * Fuzz: hostile API objects beside honest ones, in a cluster without kernels, judged against the same cluster without them.
 *
 * Guarantees:
 * - the operator, and agents' sources and models, run as they do in a cluster, and read every kind that they read there;
 * - what a tenant writes (one namespace, pods' status too, but the addresses there: admission refuses those from Kubernetes 1.30 on), or the holder of
 *   one node's credentials, changes nothing of others: what is enforced, at any moment while others do nothing, and over edits of others and
 *   restarts; rules, peer sets, identities, slices, statuses; nobody ends, lists again or says that it is unready. Of what only an administrator may
 *   write, nobody ends by it;
 * - amounts delay nobody: where a crowd is beside them, an edit and new pods of others are taken in after a few changes of the crowd, and what
 *   follows from them is written after a few of its writes, whatever its size;
 * - once the objects are gone everything is as without them, to the number of rows of each table;
 * - a seed repeats the objects. A finding has the fewest objects for which there was time.
 *
 * `hostile` makes objects from the `kinds`, as far as `admission` lets their authors write them; `disguises` hands them to readers past validation;
 * `crowds` makes many and large ones around what limits allow, `valve` lets them through at once, and `turns` counts who waits for whom;
 * `story` is the honest part, `cluster` and `node` run it; `outcome` is what is compared, `judge` says what may differ, `play` does one cluster,
 * `run` many.
 */
export { passed, print } from './report.ts';
export { type Finding, type FuzzOptions, type FuzzReport, fuzz } from './run.ts';
