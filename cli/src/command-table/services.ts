// SPDX-License-Identifier: Apache-2.0

import { tokenFile, trust } from "./contexts.ts";
import type { CommandSpec, OptionSpec } from "./spec.ts";

/** The option that names the configuration file of a service, whose keys are those of the options here. */
const config = (file: string) =>
  ({
    config: {
      flags: "--config <file>",
      type: "text",
      description: "File with options of this command, YAML; `none`: no file",
      env: "MILLPOND_SERVICE_CONFIG",
      defaultText: `${file}, where there is one`,
    },
  }) as const satisfies Record<string, OptionSpec>;

const authorities = {
  flags: "--ca <file>",
  type: "text",
  env: "MILLPOND_CA",
} as const;

const labels = {
  flags: "--labels <labels>",
  type: "labels",
  description: "Labels of the node, by which claims can choose it: zone=b,gpu=h200",
  env: "MILLPOND_AGENT_LABELS",
  defaultText: "none",
} as const satisfies OptionSpec;

const driver = {
  flags: "--driver <libs>",
  type: "text",
  description:
    "Driver libraries whose devices the node offers, paths separated by commas; `auto`: the NVIDIA driver, wherever it is installed; `soft`: software GPUs",
  env: "MILLPOND_AGENT_DRIVER",
  defaultText: "auto",
} as const satisfies OptionSpec;

const nodeName = {
  flags: "--name <name>",
  type: "node-name",
  description: "Name of the node, unique in the pool",
  env: "MILLPOND_AGENT_NAME",
  defaultText: "the first part of the host's name",
} as const satisfies OptionSpec;

const agentListen = {
  flags: "--listen <address>",
  type: "text",
  description:
    "Address and port to serve on; workers take TCP ports of the same address. Beyond loopback all of it is encrypted",
  env: "MILLPOND_AGENT_LISTEN",
  defaultText: "0.0.0.0:7171; 127.0.0.1:0 where the controller is on loopback",
} as const satisfies OptionSpec;

/** Commands for shells, service managers and new hosts. */
export const serviceCommands = {
  controller: {
    summary: "Run a controller",
    description: `Decides which claims get which devices, and keeps that state in a file or a database. Runs until SIGTERM or SIGINT; logs
are lines of JSON on standard error. Notifies systemd when ready, and supports systemd's watchdog.

The value of an omitted option comes from its environment variable, then from the file, where names are in camel case:
\`tlsNames: pool.example.org\`. \`millpond config check controller\` checks such a file. Further tokens, separated by commas:
MILLPOND_USER_TOKENS, MILLPOND_AGENT_TOKENS.`,
    examples: [
      {
        command: "millpond controller --listen 0.0.0.0:7170",
        what: "with TLS and its own certificate authority",
      },
      {
        command: "millpond controller --store postgres://millpond@db/millpond --listen 0.0.0.0:7170",
        what: "one of several that share a state",
      },
    ],
    arguments: [],
    options: {
      listen: {
        flags: "--listen <address>",
        type: "text",
        description: "Address and port; beyond loopback with TLS; port 0 takes a free one",
        env: "MILLPOND_LISTEN",
        defaultText: "127.0.0.1:7170",
      },
      state: {
        flags: "--state <dir>",
        type: "text",
        description: "Directory of the state and the tokens",
        env: "MILLPOND_STATE",
        defaultText: "~/.local/state/millpond/controller",
      },
      store: {
        flags: "--store <url>",
        type: "text",
        description:
          "Keep the state in PostgreSQL, which several controllers may share: postgres://user@host:5432/database",
        env: "MILLPOND_STORE",
        defaultText: "a file of the state directory",
      },
      advertise: {
        flags: "--advertise <url>",
        type: "text",
        description: "Base URL at which other controllers, and callers that they redirect, reach this one",
        env: "MILLPOND_ADVERTISE",
        defaultText: "where it listens",
      },
      ca: {
        ...authorities,
        description: "Certificate authority of the other controllers, PEM",
        defaultText: "the pool's own, else those of the machine",
      },
      tlsCert: {
        flags: "--tls-cert <file>",
        type: "text",
        description: "Server certificate, PEM; reloaded every minute",
        env: "MILLPOND_TLS_CERT",
        defaultText: "beyond loopback one of the pool's own authority, tls/ca.crt in the state directory",
      },
      tlsKey: {
        flags: "--tls-key <file>",
        type: "text",
        description: "Its key, PEM",
        env: "MILLPOND_TLS_KEY",
        defaultText: "none",
      },
      tlsNames: {
        flags: "--tls-names <names>",
        type: "list",
        description: "Further names and addresses of this machine for the generated certificate",
        env: "MILLPOND_TLS_NAMES",
        defaultText: "none",
      },
      keyFile: {
        flags: "--key-file <file>",
        type: "text",
        description:
          "Key that seals the pool's secrets in the state and in backups; the same file for all controllers of a pool",
        env: "MILLPOND_KEY_FILE",
        defaultText: "pool.key in the state directory, created if missing",
      },
      auditLog: {
        flags: "--audit-log <file>",
        type: "text",
        description: "Write the audit to this file as well, as JSON lines; SIGHUP reopens it",
        env: "MILLPOND_AUDIT_LOG",
        defaultText: "none",
      },
      auditLogRequired: {
        flags: "--audit-log-required",
        type: "flag",
        description: "Refuse changes that cannot be written to the audit log",
        env: "MILLPOND_AUDIT_LOG_REQUIRED",
      },
      ownAgentTokensOnly: {
        flags: "--own-agent-tokens-only",
        type: "flag",
        description:
          "Accept only agent tokens that were created for their node, not the shared one of the state directory",
        env: "MILLPOND_OWN_AGENT_TOKENS_ONLY",
      },
      changesPerSecond: {
        flags: "--changes-per-second <count>",
        type: "weight",
        description:
          "Changes that a token of a tenant may make per second, over ten seconds; a tenant may make twice that number",
        env: "MILLPOND_CHANGES_PER_SECOND",
        defaultText: "100",
      },
      webhooks: {
        flags: "--webhooks <file>",
        type: "text",
        description: "Send events to the receivers that this file names, JSON: docs/notifications.md",
        env: "MILLPOND_WEBHOOKS",
        defaultText: "none",
      },
      oidc: {
        flags: "--oidc <file>",
        type: "text",
        description:
          "Let users of the OpenID provider that this file names log in to the console, JSON: docs/oidc.md",
        env: "MILLPOND_OIDC",
        defaultText: "none",
      },
      logLevel: {
        flags: "--log-level <level>",
        type: "choice",
        choices: ["trace", "debug", "info", "warn", "error", "silent"],
        description: "Log level",
        env: "MILLPOND_LOG_LEVEL",
        defaultText: "info",
      },
      ...config("/etc/millpond/controller.yaml"),
    },
    group: "Serve",
  },
  agent: {
    summary: "Run the agent of a node",
    description: `Offers the GPUs of this host to the pool. Runs until SIGTERM or SIGINT; logs are lines of JSON on standard error. Notifies
systemd when ready, and supports systemd's watchdog. After \`millpond join\` no option is
needed.

The value of an omitted option comes from its environment variable, then from the file, where names are in camel case:
\`tokenFile: /etc/millpond/agent.token\`. \`millpond config check agent\` checks such a file.`,
    examples: [
      { command: "millpond agent", what: "on a host that has joined" },
      {
        command: "millpond agent --controller https://controller:7170 --ca ca.crt --token-file agent.token",
        what: "with every option given",
      },
    ],
    arguments: [],
    options: {
      controller: {
        flags: "--controller <url>",
        type: "text",
        description: "Base URL of the controller; of several, separated by commas",
        env: "MILLPOND_CONTROLLER",
        defaultText: "the file's, which `millpond join` writes",
      },
      tokenFile: {
        flags: "--token-file <file>",
        type: "text",
        description: "File with a token of the role agent",
        env: "MILLPOND_AGENT_TOKEN_FILE",
        defaultText: "/etc/millpond/agent.token",
      },
      metricsTokenFile: {
        flags: "--metrics-token-file <file>",
        type: "text",
        description: "File with a further token that only reads metrics; it may be the same on all nodes",
        env: "MILLPOND_AGENT_METRICS_TOKEN_FILE",
        defaultText: "none",
      },
      ca: {
        ...authorities,
        description: "Certificate authority of the controller, PEM",
        defaultText: "the machine's authorities",
      },
      name: nodeName,
      driver,
      listen: agentListen,
      workerPorts: {
        flags: "--worker-ports <from-to>",
        type: "text",
        description:
          "TCP ports of the workers, one for each session and each idle worker at a time: for firewalls",
        env: "MILLPOND_AGENT_WORKER_PORTS",
        defaultText: "any free ports",
      },
      advertise: {
        flags: "--advertise <host>",
        type: "text",
        description: "Name or address by which programs reach this node",
        env: "MILLPOND_AGENT_ADVERTISE",
        defaultText: "where it listens",
      },
      encrypt: {
        flags: "--encrypt",
        type: "flag",
        description: "Also encrypt on loopback",
        env: "MILLPOND_AGENT_ENCRYPT",
      },
      labels,
      warm: {
        flags: "--warm <count>",
        type: "number",
        description: "Idle workers to keep ready for each device, 0 to 16",
        env: "MILLPOND_AGENT_WARM",
        defaultText: "1",
      },
      drain: {
        flags: "--drain <which>",
        type: "choice",
        choices: ["none", "idle", "all"],
        description:
          "Workers that end with the agent: none leaves sessions and idle workers to the next agent of the run directory",
        env: "MILLPOND_AGENT_DRAIN",
        defaultText: "none",
      },
      reconnectGrace: {
        flags: "--reconnect-grace <seconds>",
        type: "duration",
        description:
          "Longest time that a session waits for a program whose TCP connection was lost; 0 ends it with the connection",
        env: "MILLPOND_AGENT_RECONNECT_GRACE",
        defaultText: "5m",
      },
      run: {
        flags: "--run <dir>",
        type: "text",
        description: "Directory for the files of the workers; used by one agent at a time",
        env: "MILLPOND_AGENT_RUN",
        defaultText: "/var/lib/millpond/agent; ~/.local/state/millpond/agent for users other than root",
      },
      worker: {
        flags: "--worker <program>",
        type: "text",
        description: "The worker program",
        env: "MILLPOND_AGENT_WORKER",
        defaultText: "the installed one",
      },
      workerUsers: {
        flags: "--worker-users <from-to>",
        type: "text",
        description: "User ids of the workers of an agent that runs as root, one for each claim",
        env: "MILLPOND_AGENT_WORKER_USERS",
        defaultText: "1900000000-1900065535",
      },
      workerUser: {
        flags: "--worker-user <user>",
        type: "text",
        description: "One user for all workers instead; none: the agent's",
        env: "MILLPOND_AGENT_WORKER_USER",
        defaultText: "one for each claim",
      },
      claimHostMemory: {
        flags: "--claim-host-memory <size>",
        type: "text",
        description: "Most host memory that the workers of one claim may have together",
        env: "MILLPOND_AGENT_CLAIM_HOST_MEMORY",
        defaultText: "three quarters of the host's",
      },
      sessionOverhead: {
        flags: "--session-overhead <size>",
        type: "text",
        description:
          "Memory of a GPU that its driver takes for the context of a session: reserved once for each claim, and charged to it for its further sessions",
        env: "MILLPOND_AGENT_SESSION_OVERHEAD",
        defaultText: "as measured when the agent starts, on cards at least 4 MiB for each multiprocessor",
      },
      trustPageableAccess: {
        flags: "--trust-pageable-access",
        type: "flag",
        description:
          "Serve GPUs whose kernels can address the memory of their worker (HMM, ATS); for nodes of one tenant",
        env: "MILLPOND_AGENT_TRUST_PAGEABLE_ACCESS",
      },
      ...config("/etc/millpond/agent.yaml"),
    },
    group: "Serve",
  },
  join: {
    summary: "Add this host to a pool as a node",
    description: `Checks the requirements of an agent: installed files, a driver with GPUs, the clock, the port, the controller's certificate and
the token. Then writes the configuration to /etc/millpond and starts the service, if systemd and the package are
installed. Nothing is written until all checks pass. Repeat the command to change the token or the address.`,
    examples: [
      {
        command: "millpond token create node-7 --role agent",
        what: "on a machine of an administrator; it prints the whole command for the new host",
      },
      {
        command: "millpond join https://controller:7170 --token-file - --fingerprint sha256:…",
        what: "on the GPU host; the token is read from standard input",
      },
    ],
    arguments: [
      { name: "controller", description: "Base URL of the controller; of several, separated by commas" },
    ],
    options: {
      token: {
        flags: "--token <token>",
        type: "text",
        description: "A token of the role agent",
        env: "MILLPOND_TOKEN",
        defaultText: "prompts on a terminal",
      },
      ...tokenFile,
      ...trust,
      name: nodeName,
      driver,
      listen: agentListen,
      labels,
      directory: {
        flags: "--directory <dir>",
        type: "text",
        description: "Where the configuration is written",
        defaultText: "/etc/millpond",
      },
      start: { flags: "--no-start", type: "flag", description: "Do not start the agent" },
    },
    group: "Serve",
  },
  config: {
    summary: "Check the configuration file of a service",
    examples: [
      { command: "millpond config check agent", what: "/etc/millpond/agent.yaml, and its effective options" },
      {
        command: "millpond config check controller new.yaml",
        what: "another file, before it replaces the old one",
      },
    ],
    arguments: [
      { name: "action", description: "What to do", choices: ["check"] },
      { name: "service", description: "Service that the file configures", choices: ["controller", "agent"] },
      { name: "file", description: "The file", isOptional: true },
    ],
    options: {},
    group: "Serve",
  },
  completion: {
    summary: "Print completion code for a shell",
    examples: [
      {
        command: "source <(millpond completion bash)",
        what: "bash and zsh; put it into ~/.bashrc or ~/.zshrc",
      },
      { command: "millpond completion fish | source", what: "fish" },
    ],
    arguments: [{ name: "shell", description: "The shell", choices: ["bash", "zsh", "fish"] }],
    options: {},
    group: "Operate",
  },
} as const satisfies Record<string, CommandSpec>;
