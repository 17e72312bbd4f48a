/** For tests of this and other folders: frames, a loaded datapath, a veth pair with processes, and a model of judging. */

export { Actor, type ActorSocket, type Place, placed } from './actor.ts';
export * from './datapath.ts';
export { Model, type ModelPacket } from './model.ts';
export * from './packets.ts';
export { LISTENER, NODES, PODS, ProxiedWorld, SERVER_IDENTITY, SERVERS } from './proxied.ts';
export { NODE_ADDRESS, Peer, POD_ADDRESS, RAW_SENDER, VethPair } from './veth.ts';
