/** Version of the agent, its CLI and its CNI plugin: that of package.json. */
export const VERSION = '0.1.0';
