// SPDX-License-Identifier: Apache-2.0
// The attacks on a pool that have to be refused, and the tests that try them: a security review's list of 20.

/** Cases of a native test program. */
interface NativeCases {
  /** CMake's name of the program. */
  readonly program: "attack_tests" | "protocol_tests" | "remoted_tests" | "worker_tests";
  /** The file, as the program's first argument. */
  readonly file: string;
  /** Words of the cases' names; absent: all cases of the file. */
  readonly only?: readonly string[];
}

/** Tests that vitest runs. */
interface ScriptTests {
  /** The file's name, which is unique; its folder may change. */
  readonly file: string;
  /** Words of the tests' names; absent: all tests of the file. */
  readonly only?: readonly string[];
}

export interface Attack {
  readonly number: number;
  readonly name: string;
  /** The goal of the attacker. */
  readonly gain: string;
  readonly native: readonly NativeCases[];
  readonly scripts: readonly ScriptTests[];
}

export const attacks: readonly Attack[] = [
  {
    number: 1,
    name: "addresses",
    gain: "read or write memory of the worker by naming its addresses",
    native: [
      { program: "attack_tests", file: "addresses_test" },
      { program: "attack_tests", file: "rows_test" },
    ],
    scripts: [],
  },
  {
    number: 2,
    name: "reply-ring",
    gain: "make the worker write outside of shared memory by lying about what was read",
    native: [
      { program: "attack_tests", file: "reply_ring_test" },
      {
        program: "protocol_tests",
        file: "server_link_test",
        only: ["tail that lies", "lies in its control words"],
      },
    ],
    scripts: [],
  },
  {
    number: 3,
    name: "frames",
    gain: "have one command checked and another one executed, by changing it in shared memory",
    native: [
      { program: "attack_tests", file: "frames_test" },
      { program: "protocol_tests", file: "server_link_test", only: ["what was looked at"] },
    ],
    scripts: [],
  },
  {
    number: 4,
    name: "claim-memory",
    gain: "have more device memory than the claim, by many processes",
    native: [{ program: "worker_tests", file: "claim_budget_test" }],
    scripts: [{ file: "claim-limits.test.ts", only: ["processes of a claim have its memory together"] }],
  },
  {
    number: 5,
    name: "driver-memory",
    gain: "take device memory that nobody asked for: modules, contexts, streams, stacks",
    native: [
      { program: "attack_tests", file: "claim_limits_test", only: ["more variables than the claim"] },
      {
        program: "worker_tests",
        file: "claim_counts_test",
        only: ["variables of modules", "kernels that print or allocate", "contexts, streams and stacks"],
      },
      { program: "worker_tests", file: "claim_accounts_test" },
      { program: "worker_tests", file: "session_devices_test", only: ["refused, or waits"] },
    ],
    scripts: [
      { file: "claim-limits.test.ts", only: ["the driver's contexts of a claim's many sessions"] },
      { file: "driver-memory.test.ts" },
    ],
  },
  {
    number: 6,
    name: "sessions",
    gain: "open so many sessions that no other tenant gets one",
    native: [],
    scripts: [{ file: "claim-limits.test.ts", only: ["a claim opens no more than"] }],
  },
  {
    number: 7,
    name: "shares",
    gain: "have more of a device's time than the share, by many processes or one after the other",
    native: [
      {
        program: "worker_tests",
        file: "session_gate_test",
        only: [
          "a claim has its share however many sessions",
          "a process for each kernel",
          "ended while their kernel is at work",
          "a debt of minutes",
          "work only waits is charged",
          "copies in a direction have its share",
          "random claims, some hostile",
        ],
      },
      {
        program: "worker_tests",
        file: "gate_file_test",
        only: ["ends its claim and begins another", "repays it slowly", "owe together"],
      },
    ],
    scripts: [],
  },
  {
    number: 8,
    name: "host-memory",
    gain: "fill the node's memory with what waits: graphs, half images, commands behind a function, pinned memory",
    native: [
      {
        program: "attack_tests",
        file: "claim_limits_test",
        only: ["child graphs", "images of which", "nodes of graphs, their parameters"],
      },
      { program: "worker_tests", file: "hostile_test", only: ["what waits for a stream is bounded"] },
      {
        program: "worker_tests",
        file: "claim_counts_test",
        only: ["pinned host memory", "bytes of images", "images, the driver's copies of them"],
      },
      { program: "protocol_tests", file: "link_test", only: ["acknowledges nothing are kept as far"] },
    ],
    scripts: [{ file: "claim-limits.test.ts", only: ["a claim's many sessions end at its host memory"] }],
  },
  {
    number: 9,
    name: "handles",
    gain: "exhaust or confuse the worker by invented handles, and by more things than it can keep",
    native: [
      { program: "attack_tests", file: "handles_test" },
      {
        program: "attack_tests",
        file: "claim_limits_test",
        only: ["more streams than", "streams whose work does not end"],
      },
    ],
    scripts: [],
  },
  {
    number: 10,
    name: "taken-over-worker",
    gain: "reach the agent's secrets, other workers or the network with code inside a worker",
    native: [
      { program: "worker_tests", file: "containment_test" },
      { program: "worker_tests", file: "hostile_table_test" },
      { program: "worker_tests", file: "gate_lock_test" },
      { program: "worker_tests", file: "peer_sharing_test", only: ["ask nothing"] },
    ],
    scripts: [{ file: "containment.test.ts" }],
  },
  {
    number: 11,
    name: "roles",
    gain: "call what a role may not, or learn what belongs to another tenant",
    native: [],
    scripts: [{ file: "access.test.ts" }, { file: "redaction.test.ts" }],
  },
  {
    number: 12,
    name: "quotas",
    gain: "keep other tenants out by waiting claims, tokens and refused calls",
    native: [],
    scripts: [
      { file: "tenant-limits.test.ts" },
      { file: "audit.test.ts", only: ["a flood of calls that change nothing"] },
      { file: "call-limits.test.ts" },
    ],
  },
  {
    number: 13,
    name: "agent-tokens",
    gain: "report another node, or attract claims to an address, with an agent's token",
    native: [],
    scripts: [{ file: "agent-tokens.test.ts" }],
  },
  {
    number: 14,
    name: "tickets",
    gain: "get a session by a changed, used, late or foreign ticket",
    native: [],
    scripts: [
      { file: "ticket.test.ts" },
      { file: "admission.test.ts" },
      { file: "signing-keys.test.ts" },
      { file: "faults.test.ts", only: ["a wrong ticket, and one that was used"] },
    ],
  },
  {
    number: 15,
    name: "floods",
    gain: "stop controller, agent or worker without a token: connections, slow heads and bodies, half handshakes",
    native: [
      {
        program: "worker_tests",
        file: "acceptor_test",
        only: ["however many others hang", "garbage is dropped"],
      },
    ],
    scripts: [
      { file: "floods.test.ts" },
      {
        file: "node-service.test.ts",
        only: ["one byte at a time", "half a TLS handshake", "connections beyond the limit"],
      },
    ],
  },
  {
    number: 16,
    name: "reads",
    gain: "slow everybody's calls down by reads that are expensive",
    native: [],
    scripts: [{ file: "fairness.test.ts" }],
  },
  {
    number: 17,
    name: "shared-memory-handles",
    gain: "open memory of another claim by forged, old or changed IPC handles, or images of another tenant by their hash",
    native: [
      { program: "worker_tests", file: "peer_sharing_test" },
      { program: "worker_tests", file: "image_cache_test", only: ["not there for another one"] },
    ],
    scripts: [{ file: "run-directory.test.ts", only: ["images of a tenant"] }],
  },
  {
    number: 18,
    name: "reconnect",
    gain: "take over a session whose connection was lost, or listen to it",
    native: [
      {
        program: "remoted_tests",
        file: "resumption_test",
        only: [
          "only who has the secret",
          "comes back for what never was",
          "acknowledges what was never sent",
        ],
      },
      { program: "remoted_tests", file: "links_test", only: ["another, gets no GPU"] },
      { program: "worker_tests", file: "acceptor_test", only: ["with a secret"] },
    ],
    scripts: [],
  },
  {
    number: 19,
    name: "hostile-replies",
    gain: "harm a client as its worker: replies that make no sense, landings where none was asked for",
    native: [
      {
        program: "protocol_tests",
        file: "session_loss_test",
        only: [
          "make no sense",
          "second answer",
          "head lies",
          "random replies",
          "writes into nobody's memory",
        ],
      },
    ],
    scripts: [],
  },
  {
    number: 20,
    name: "host",
    gain: "read secrets, or lock services out, as another user of the host",
    native: [{ program: "protocol_tests", file: "loopback_peer_test" }],
    scripts: [
      { file: "loopback-peer.test.ts" },
      { file: "host.test.ts" },
      { file: "run-directory.test.ts", only: ["no other user of the node"] },
    ],
  },
];
