// SPDX-License-Identifier: Apache-2.0

import { claimFields } from "@millpond/api/claim-fields";
import { connection, existing, request } from "./options.ts";
import type { CommandSpec } from "./spec.ts";

/** Commands that run programs. */
export const programCommands = {
  run: {
    summary: "Run a program on vGPUs of the pool",
    description: `Creates a claim, waits until it is bound, runs the program on its vGPUs and releases the claim when the program ends. The
program is not modified: it loads a CUDA driver library that connects to its vGPUs, wherever they are.

Standard input, signals and the exit status pass through; millpond itself writes nothing to standard output. Exit status:
the program's; 128 plus the number of the signal that killed it; 75 if the claim was preempted or released, so that a retry may
succeed. If the program was not started: 118 for a wrong command line, 119 if the controller is not reached, 120 for a token
without the right, 121 for what does not exist, 122 if no node could hold the claim, 123 with --no-wait if there is no room now,
124 after --timeout, 126 if the program cannot be executed, 127 if it was not found, 125 for any other error.

Programs of a gang find each other by RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. torchrun needs no options: it takes its
number of nodes, its rank and the first member's address from the environment. MILLPOND_HOSTS lists the hosts of all members, by
rank. The port was free when the member's claim was created.

With --array the exit status is the highest of all tasks. Their claims are named NAME-INDEX if --name is given, and tasks have no
standard input.`,
    examples: [
      { command: "millpond run -- python train.py", what: "one whole GPU" },
      {
        command: "millpond run -n 1 -m 8Gi -- ./program",
        what: "8 GiB of one GPU, and compute in proportion",
      },
      {
        command: "millpond run -n 2 -m 512Mi --compute 50 -- ./program",
        what: "half of the compute of two GPUs",
      },
      {
        command: "millpond run -q research --priority 10 --preemptible -- python train.py",
        what: "in a queue, with higher priority, and preemptible",
      },
      { command: "millpond run --no-wait -p 0.5 -- ./program", what: "half a GPU, without waiting" },
      {
        command: "millpond apply -f train.yaml && millpond run --claim train -- python train.py",
        what: "in a claim created from a file",
      },
      {
        command: "millpond run --trace calls -- ./program",
        what: "with every call traced to the file calls",
      },
      {
        command: "millpond run -d --name train -- python train.py; millpond logs -f train",
        what: "without a terminal",
      },
      {
        command: "millpond run --array 0-99%8 -p 0.25 -- sh -c './program part-$MILLPOND_ARRAY_INDEX'",
        what: "100 programs on a quarter of a GPU each, 8 at a time",
      },
      {
        command: "millpond run -d --name test --after train:ok -- python test.py",
        what: "when the job train has ended with 0",
      },
      {
        command: "millpond run -n 4 --gang ddp --gang-size 2 -- torchrun train.py",
        what: "on each of two machines: 8 processes of one training job",
      },
      {
        command: "millpond run --profile profile.json -- python train.py",
        what: "with a time line of kernels, copies and fills, for ui.perfetto.dev",
      },
    ],
    arguments: [{ name: "program", description: "The program and its arguments", isProgram: true }],
    options: {
      ...request,
      ...existing,
      transport: {
        flags: "--transport <how>",
        type: "choice",
        choices: ["auto", "shm", "tcp"],
        description: "How the program reaches its worker",
        env: "MILLPOND_TRANSPORT",
        defaultText: "auto: shared memory on the GPU's own machine, else TCP",
      },
      requeue: {
        flags: "--requeue",
        type: "flag",
        description: "When the claim is preempted, wait for new vGPUs and restart the program",
      },
      noticeSignal: {
        flags: "--notice-signal <signal>",
        type: "choice",
        choices: ["SIGTERM", "SIGINT", "SIGUSR1", "SIGUSR2", "SIGHUP"],
        description: "Signal that the program gets as notice of preemption",
        env: "MILLPOND_NOTICE_SIGNAL",
        defaultText: "SIGTERM",
      },
      array: {
        flags: "--array <indexes>",
        type: "text",
        description:
          "Run the program once for each index, each in its own claim: 0-9, 1,3,7, 0-99%8 for 8 at a time; MILLPOND_ARRAY_INDEX is the index",
        defaultText: "one program",
      },
      detach: {
        flags: "-d, --detach",
        type: "flag",
        description:
          "Return when the claim is created, print its name, and run without a terminal; see `millpond logs` and `attach`",
      },
      after: {
        flags: "--after <names>",
        type: "list",
        description:
          "Create the claim when these jobs or claims have ended; NAME:ok: only if the job NAME has ended with 0",
        defaultText: "now",
      },
      trace: {
        flags: "--trace <file>",
        type: "text",
        description:
          "Write every call of the driver API into a file, for `millpond trace`; %p in its name is the process",
        defaultText: "none",
      },
      profile: {
        flags: "--profile <file>",
        type: "text",
        description:
          "Write a timed trace of the program's calls and of its vGPUs' activity, for Perfetto and TensorBoard",
        defaultText: "none",
      },
      verbose: {
        flags: "-v, --verbose",
        type: "flag",
        description: "Report grants and releases on standard error",
      },
      ...connection,
    },
    group: "Run programs",
  },
  jobs: {
    summary: "List the programs that `run --detach` has started on this machine",
    description: `The last 100 ended programs are kept, with their output, in the folder jobs of ~/.local/state/millpond. A job
is lost if its machine was restarted, or the millpond process that ran it was killed.`,
    examples: [
      { command: "millpond jobs", what: "running programs, and how the others ended" },
      { command: "millpond jobs -o json", what: "for scripts" },
    ],
    arguments: [],
    options: {
      output: {
        flags: "-o, --output <format>",
        type: "choice",
        choices: ["table", "name", "json"],
        description: "Output format",
        defaultText: "table",
      },
    },
    group: "Run programs",
  },
  logs: {
    summary: "Show the output of a program started with `run --detach`",
    description: `Prints standard output and standard error in the order of writing, with the messages of millpond. Works on the machine where
the program was started.`,
    examples: [
      { command: "millpond logs train", what: "the output so far" },
      {
        command: "millpond logs -f --tail 20 train",
        what: "the last 20 lines, and further output until it ends",
      },
    ],
    arguments: [{ name: "job", description: "Name of the job", names: "jobs" }],
    options: {
      follow: {
        flags: "-f, --follow",
        type: "flag",
        description: "Keep printing until the program ends; Ctrl-C ends only the command",
      },
      tail: {
        flags: "--tail <lines>",
        type: "lines",
        description: "Start with this many of the last lines",
        defaultText: "all",
      },
    },
    group: "Run programs",
  },
  attach: {
    summary: "Follow a program started with `run --detach` as if it ran in this terminal",
    description: `Shows its past and further output, forwards Ctrl-C and other signals to it, and exits with its exit status. An ended program
is shown in the same way.`,
    examples: [
      { command: "millpond attach train", what: "its output, then its exit status" },
      {
        command: "millpond attach --tail 0 train",
        what: "only further output, until it ends",
      },
    ],
    arguments: [{ name: "job", description: "Name of the job", names: "jobs" }],
    options: {
      tail: {
        flags: "--tail <lines>",
        type: "lines",
        description: "Start with this many of the last lines",
        defaultText: "all",
      },
    },
    group: "Run programs",
  },
  env: {
    summary: "Print environment variables that give programs vGPUs",
    description: `For programs that cannot be wrapped by \`millpond run\`. Each program started in that environment creates its own claim
and releases it when it ends.`,
    examples: [
      {
        command: 'eval "$(millpond env -n 1 -m 1Gi)"',
        what: "programs started from this shell then run on vGPUs",
      },
    ],
    arguments: [],
    options: {
      ...claimFields,
      gpuMemory: request.gpuMemory,
      partial: request.partial,
      timeout: request.timeout,
      ...existing,
      transport: {
        flags: "--transport <how>",
        type: "choice",
        choices: ["auto", "shm", "tcp"],
        description: "How programs reach their workers",
        env: "MILLPOND_TRANSPORT",
        defaultText: "auto",
      },
      ...connection,
    },
    group: "Run programs",
  },
  trace: {
    summary: "Summarize traces of programs: calls, waits, copies, launches, failures",
    description: `Reads files written by \`millpond run --trace\` or MILLPOND_LOG, which have one line for each call of the driver API.
Shows the count, duration and waits of each call; bytes copied, by direction; launches, by kernel; failed calls; and the time
between calls, spent in the program itself.`,
    examples: [
      {
        command: "millpond run --trace calls -- ./program; millpond trace calls",
        what: "one run of a program",
      },
      { command: "millpond trace calls.* -o json", what: "the traces of several processes, for scripts" },
    ],
    arguments: [{ name: "file", description: "The traces", isFiles: true }],
    options: {
      output: {
        flags: "-o, --output <format>",
        type: "choice",
        choices: ["table", "json"],
        description: "Output format",
        defaultText: "table",
      },
    },
    group: "Run programs",
  },
  sanitize: {
    summary: "Run a program on a software GPU that checks every access of its kernels",
    description: `Finds out-of-bounds, use-after-free and misaligned accesses, copies and fills out of bounds, and failing calls (memcheck);
data races in shared memory (racecheck); reads of uninitialized memory (initcheck); and barriers that not all threads of a warp or
block reach (synccheck). Findings name the calls that allocated the memory and launched the kernel, with their stacks. Needs
neither a GPU nor a pool: it runs the unmodified program on its own software GPU. Kernels must include PTX, as they do by default
with nvcc (\`-gencode arch=compute_75,code=compute_75\` always works); compile with -lineinfo to get source lines.

The report is printed after the program has ended, on standard error or to a file. It lists the checks even without
findings. The exit status is the program's, or that of --error-exitcode if there are findings, an image could not be
loaded, or no kernel was launched; 118 to 125 if millpond failed (as for run), 126 if the program cannot be executed, 127 if it was not
found.`,
    examples: [
      { command: "millpond sanitize -- ./program", what: "memory and races" },
      {
        command: "millpond sanitize --driver auto -- ./program",
        what: "calls and copies, on this host's card",
      },
      {
        command: "millpond sanitize --tool memcheck --leak-check -- ./program 1000",
        what: "memory only, with leaks",
      },
      {
        command: "millpond sanitize --log report.json -o json -- ./program",
        what: "for scripts",
      },
    ],
    arguments: [{ name: "program", description: "The program and its arguments", isProgram: true }],
    options: {
      tool: {
        flags: "--tool <names>",
        type: "list",
        description: "What to check: memcheck, racecheck, initcheck, synccheck",
        defaultText: "memcheck,racecheck",
      },
      leakCheck: {
        flags: "--leak-check",
        type: "flag",
        description: "Also report device memory that is not freed when the program ends",
      },
      log: {
        flags: "--log <file>",
        type: "text",
        description: "File for the report",
        defaultText: "standard error",
      },
      errorExitcode: {
        flags: "--error-exitcode <status>",
        type: "number",
        description: "Exit status when there are findings, or nothing was checked; 0: the program's",
        defaultText: "1",
      },
      output: {
        flags: "-o, --output <format>",
        type: "choice",
        choices: ["text", "json"],
        description: "Format of the report",
        defaultText: "text",
      },
      gpus: {
        flags: "-n, --gpus <count>",
        type: "count",
        description: "Number of software GPUs",
        defaultText: "1",
      },
      deviceMemory: {
        flags: "--device-memory <size>",
        type: "size",
        description: "Memory of each, 64Mi to 1Ti",
        defaultText: "4Gi",
      },
      driver: {
        flags: "--driver <file>",
        type: "text",
        description:
          "Run on this host's cards, by their driver library (auto: search for it), and check calls, copies and fills only",
        defaultText: "a software GPU",
      },
    },
    group: "Run programs",
  },
} as const satisfies Record<string, CommandSpec>;
