/** Matches the names that the CNI plugin gives to the node's ends of pods' veth pairs. */
export const VETH_PATTERN = /^weir[0-9a-f]{11}$/;
