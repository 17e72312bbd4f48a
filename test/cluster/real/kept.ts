/** A program that must go on running: started again a second after it ended, as a service manager would. */
import { Program, type ProgramOptions } from '../process.ts';

/** A program that cannot run ends this often, and is then given up. */
const GIVE_UP_AFTER = 20;

export class Kept {
  readonly #options: ProgramOptions;
  #program: Program;
  #ended = 0;
  #stopped = false;

  constructor(options: ProgramOptions) {
    this.#options = options;
    this.#program = this.#start();
  }

  get program(): Program {
    return this.#program;
  }

  /** How often it has ended and was started again. */
  get restarts(): number {
    return this.#ended;
  }

  #start(): Program {
    const program = new Program(this.#options);
    const again = () => {
      this.#ended += 1;
      if (this.#stopped || this.#ended > GIVE_UP_AFTER) return;
      setTimeout(() => {
        if (!this.#stopped) this.#program = this.#start();
      }, 1000).unref();
    };
    // 'error' comes instead when it cannot be started at all.
    program.child.once('exit', again).once('error', again);
    return program;
  }

  /** Ends it at once: it has nothing to say goodbye to. */
  async stop(): Promise<void> {
    this.#stopped = true;
    await this.#program.kill9();
  }
}
