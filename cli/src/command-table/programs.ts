// SPDX-License-Identifier: Apache-2.0

import { claimFields } from "@millpond/api/claim-fields";
import { connection, existing, request } from "./options.ts";
import type { CommandSpec } from "./spec.ts";

/** Commands that run programs. */
export const programCommands = {
  run: {
    summary: "Run a program on vGPUs of the pool",
    description: `Claims vGPUs, waits until the pool has room, runs the program with them and gives them back when it ends. The program
is not changed in any way: it finds a CUDA driver library that reaches its vGPUs, wherever they are.

Standard input, signals and the exit status pass through; millpond itself writes nothing to standard output. Exit status:
the program's; 128 and the number of the signal that killed it; 75 when its vGPUs were taken back, so that a restart is
worthwhile, or when its claim was released; 125 when millpond failed, 126 when the program cannot be run, 127 when it is not
found.

The program of a member of a gang finds the others by RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, and torchrun needs no
option: it takes its number of nodes, its rank and the first member's address from the environment. MILLPOND_HOSTS has the
hosts of all members, by rank. A member's port was free when its claim was made.

With --array the exit status is the greatest of all tasks. Their claims are NAME-INDEX where --name is given, and no task has
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
        what: "in a queue, before others, and given back when a claim with a better right needs it",
      },
      { command: "millpond run --no-wait -p 0.5 -- ./program", what: "half a GPU, now or not at all" },
      {
        command: "millpond apply -f train.yaml && millpond run --claim train -- python train.py",
        what: "in a claim that a file describes",
      },
      {
        command: "millpond run --trace calls -- ./program",
        what: "with every call recorded in the file calls",
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
        command: "millpond run -n 4 --gang ddp --gang-size 2 -- torchrun train.py",
        what: "on each of two machines: 8 processes of one training",
      },
      {
        command: "millpond run --profile profile.json -- python train.py",
        what: "with kernels, copies and fills on a time line, for ui.perfetto.dev",
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
          "Run once for each index, in claims of their own: 0-9, 1,3,7, 0-99%8 for 8 at a time; the program finds its index in MILLPOND_ARRAY_INDEX",
        defaultText: "one program",
      },
      detach: {
        flags: "-d, --detach",
        type: "flag",
        description:
          "Return when the claim is made, print its name, and go on without a terminal; see `millpond logs` and `attach`",
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
          "Write what the program called and what its vGPUs did, with times, as a trace for Perfetto and TensorBoard",
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
    description: `The newest 100 programs that have ended are kept, with their output, in the folder jobs of ~/.local/state/millpond. A job
is lost when its machine was restarted, or the millpond that ran it was killed.`,
    examples: [
      { command: "millpond jobs", what: "what runs, and how the others have ended" },
      { command: "millpond jobs -o json", what: "for scripts" },
    ],
    arguments: [],
    options: {
      output: {
        flags: "-o, --output <format>",
        type: "choice",
        choices: ["table", "name", "json"],
        description: "Form of the answer",
        defaultText: "table",
      },
    },
    group: "Run programs",
  },
  logs: {
    summary: "Show the output of a program that was started with `run --detach`",
    description: `Standard output and standard error, in the order in which they were written, with the messages of millpond. They are on
the machine where the program was started.`,
    examples: [
      { command: "millpond logs train", what: "the output until now" },
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
        description: "Go on until the program ends; Ctrl-C stops following, and does not end the program",
      },
      tail: {
        flags: "--tail <lines>",
        type: "lines",
        description: "Begin with this many of the last lines",
        defaultText: "all",
      },
    },
    group: "Run programs",
  },
  attach: {
    summary: "Follow a program that was started with `run --detach` as if it ran here",
    description: `Shows its past and further output, forwards Ctrl-C and other signals to it, and ends with it and its exit status. A program
that has ended is shown the same way.`,
    examples: [
      { command: "millpond attach train", what: "its output, and then its status" },
      {
        command: "millpond attach --tail 0 train",
        what: "wait for its end, with its further output",
      },
    ],
    arguments: [{ name: "job", description: "Name of the job", names: "jobs" }],
    options: {
      tail: {
        flags: "--tail <lines>",
        type: "lines",
        description: "Begin with this many of the last lines",
        defaultText: "all",
      },
    },
    group: "Run programs",
  },
  env: {
    summary: "Print the environment in which a program finds vGPUs",
    description: `For programs that cannot be wrapped by \`millpond run\`. Each program started in that environment makes a claim of its own
and gives it back when it ends.`,
    examples: [
      {
        command: 'eval "$(millpond env -n 1 -m 1Gi)"',
        what: "from now on, programs of this shell run on vGPUs",
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
    summary: "Sum up traces of programs: calls, waits, copies, launches, failures",
    description: `Reads the files of \`millpond run --trace\` or of MILLPOND_LOG with a file: one line for each call of the driver API.
Shows for each call how often it was made, how long it took and how often it waited for the worker; the bytes that were
copied, by direction; the launches, by kernel; the calls that failed; and the time between calls, in the program itself.`,
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
        description: "Form of the answer",
        defaultText: "table",
      },
    },
    group: "Run programs",
  },
  sanitize: {
    summary: "Run a program on a software GPU that checks every access of its kernels",
    description: `Finds accesses outside the memory that a kernel was given, of memory that was freed, and misaligned ones, copies
and fills out of bounds, and calls that fail (memcheck); accesses of shared memory that no barrier orders (racecheck); reads of
memory that nothing has written (initcheck); and barriers that not all threads of a warp or block come to (synccheck). Findings
name the calls that allocated the memory and launched the kernel, with their stacks. Needs neither a GPU nor a pool: it starts a software GPU
of its own and ends it with the program, which is started unchanged. Compile kernels with PTX inside, as nvcc does by default
(\`-gencode arch=compute_75,code=compute_75\` is sure to work), and with -lineinfo to see lines of the source.

The report follows when the program has ended: on standard error, or in a file. It lists the checks, also when there are no
findings. The exit status is the program's, or that of --error-exitcode when there are findings, an image could not be
loaded, or no kernel was launched at all; 125 when millpond failed, 126 when the program cannot be run, 127 when it
is not found.`,
    examples: [
      { command: "millpond sanitize -- ./program", what: "memory and races" },
      {
        command: "millpond sanitize --tool memcheck --leak-check -- ./program 1000",
        what: "memory only, and what is not freed",
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
        description: "Form of the report",
        defaultText: "text",
      },
      gpus: {
        flags: "-n, --gpus <count>",
        type: "count",
        description: "Software GPUs that the program sees",
        defaultText: "1",
      },
      deviceMemory: {
        flags: "--device-memory <size>",
        type: "size",
        description: "Memory of each, 64Mi to 1Ti",
        defaultText: "4Gi",
      },
    },
    group: "Run programs",
  },
} as const satisfies Record<string, CommandSpec>;
