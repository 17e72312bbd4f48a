/** The answer to one watch, as far as injected faults let it through. */
import type { ServerResponse } from 'node:http';
import type { FaultInjector, RequestInfo, WatchConnection } from './faults.ts';

export class WatchStream implements WatchConnection {
  readonly #response: ServerResponse;
  readonly #faults: FaultInjector;
  readonly #info: RequestInfo;
  #held: string[] = [];
  #tearing = false;
  #torn = false;

  constructor(response: ServerResponse, faults: FaultInjector, info: RequestInfo) {
    this.#response = response;
    this.#faults = faults;
    this.#info = info;
  }

  write(line: string): void {
    if (this.#faults.holds(this.#info)) {
      this.#faults.met('event held');
      this.#held.push(line);
    } else if (this.#tearing && !this.#torn) {
      this.#torn = true;
      this.#faults.met('watch torn');
      this.#response.write(line.slice(0, line.length / 2), () => this.cut());
    } else if (!this.#torn) this.#response.write(line);
  }

  cut(): void {
    this.#response.socket?.destroy();
  }

  tear(): void {
    this.#tearing = true;
  }

  release(): void {
    for (const line of this.#held.splice(0)) this.write(line);
  }
}
