/* Page of the resources: this machine, the claims on it, and the nodes of the cluster. */
import { count, isNumber, list, size, text } from "./format";
import { Empty, Failure, State, Waiting } from "./parts";
import { usePoll } from "./poll";
import { link } from "./route";
import { type Column, Table } from "./table";
import type { About, Amounts, Claim, Runner, UserAmounts } from "./types";

const KINDS = ["cpus", "memory", "gpus"] as const;

type Kind = (typeof KINDS)[number];

const NAMES: Record<Kind, string> = { cpus: "CPUs", memory: "Memory", gpus: "GPUs" };

function amount(kind: Kind | "runs", n: unknown): string {
  return kind === "memory" ? size(n) : count(n);
}

function Meter({
  label,
  used,
  of,
  shown,
}: {
  label: string;
  used: number;
  of: number;
  shown: string;
}) {
  const part = of > 0 ? Math.min(1, used / of) : 0;

  return (
    <div
      class="meter"
      role="meter"
      aria-label={label}
      aria-valuenow={used}
      aria-valuemin={0}
      aria-valuemax={Math.max(of, used, 1)}
      aria-valuetext={shown}
    >
      <span class={part >= 0.999 ? "bar-full" : ""} style={{ width: `${part * 100}%` }} />
    </div>
  );
}

function Resource({ kind, runner }: { kind: Kind; runner: Runner }) {
  const used = runner.used?.[kind] ?? 0;
  const all = runner.capacity?.[kind] ?? 0;
  const asked = runner.asked?.[kind] ?? 0;
  const limit = runner.limits?.[kind];
  const shown = `${amount(kind, used)} of ${amount(kind, all)} claimed`;

  return (
    <div class="resource">
      <h3>{NAMES[kind]}</h3>
      <Meter label={NAMES[kind]} used={used} of={all} shown={shown} />
      <p>{shown}</p>
      <p class="quiet">
        {asked > 0 ? `${amount(kind, asked)} asked for by waiting runs. ` : ""}
        {`Yours: ${amount(kind, runner.own?.[kind] ?? 0)}${isNumber(limit) ? ` of your limit of ${amount(kind, limit)}` : ""}.`}
        {runner.enforced && runner.enforced[kind] === false
          ? " The kernel does not enforce it."
          : ""}
      </p>
    </div>
  );
}

function Machine({ runner }: { runner: Runner }) {
  const runs = runner.used?.runs ?? 0;
  const limit = runner.limits?.runs;

  return (
    <section class="card" aria-label={`Machine ${text(runner.name)}`}>
      <div class="bar">
        <h2>{text(runner.name)}</h2>
        <State state={runner.status} />
        <span class="quiet">
          {count(runs)} running, {count(runner.waiting ?? 0)} waiting
          {isNumber(limit) ? `; your limit: ${count(limit)} runs` : ""}
        </span>
      </div>
      <div class="resources">
        {KINDS.map((kind) => (
          <Resource key={kind} kind={kind} runner={runner} />
        ))}
      </div>
    </section>
  );
}

/* Reason for which a claim waits, derived from the amounts that are used and free. */
export function reasonOf(claim: Claim, runner: Runner | undefined, user: string): string {
  if (!claim.waiting) return "";
  if (!runner) return "waits";
  const owner = list<UserAmounts>(runner.users).find((one) => one.user === claim.user);
  const limit = claim.user === user ? "your limit of" : `${text(claim.user)}'s limit of`;
  const over = KINDS.find((kind) => exceeds(owner?.used, claim, owner?.limits?.[kind], kind));

  if (over) return `${limit} ${NAMES[over]} is ${amount(over, owner?.limits?.[over])}`;
  if (isNumber(owner?.limits?.runs) && (owner?.used?.runs ?? 0) >= owner!.limits!.runs!)
    return `${limit} runs is ${count(owner?.limits?.runs)}`;
  const short = KINDS.find((kind) => exceeds(runner.used, claim, runner.capacity?.[kind], kind));
  if (!short) return "a run before it waits";
  const free = Math.max(0, (runner.capacity?.[short] ?? 0) - (runner.used?.[short] ?? 0));
  return `needs ${amount(short, claim[short])} ${short === "memory" ? "memory" : NAMES[short]}, ${amount(short, free)} free`;
}

function exceeds(
  used: Amounts | null | undefined,
  claim: Claim,
  limit: unknown,
  kind: Kind,
): boolean {
  return (
    isNumber(limit) && (claim[kind] ?? 0) > 0 && (used?.[kind] ?? 0) + (claim[kind] ?? 0) > limit
  );
}

/* The number of GPUs and, if they are known, the numbers of these GPUs. */
function gpusOf(claim: Claim): string {
  const numbers = Array.isArray(claim.gpu_list) ? claim.gpu_list.filter(isNumber) : [];

  return numbers.length ? `${count(claim.gpus)} (${numbers.join(", ")})` : count(claim.gpus);
}

function limited(user: UserAmounts, kind: Kind | "runs"): string {
  const limit = user.limits?.[kind];

  return `${amount(kind, user.used?.[kind] ?? 0)}${isNumber(limit) ? ` of ${amount(kind, limit)}` : ""}`;
}

const USER_COLUMNS: Column<UserAmounts>[] = [
  { key: "user", label: "User", cell: (one) => text(one.user) },
  { key: "runs", label: "Runs", cell: (one) => limited(one, "runs") },
  { key: "cpus", label: "CPUs", cell: (one) => limited(one, "cpus") },
  { key: "memory", label: "Memory", cell: (one) => limited(one, "memory") },
  { key: "gpus", label: "GPUs", cell: (one) => limited(one, "gpus") },
];

function Users({ runner }: { runner: Runner }) {
  const users = list<UserAmounts>(runner.users);

  if (!users.length) return null;
  return (
    <>
      <h2>Users</h2>
      <Table
        label="Users, their claims and limits"
        rows={users}
        columns={USER_COLUMNS}
        rowKey={(one) => text(one.user)}
      />
    </>
  );
}

function claimColumns(runner: Runner | undefined, user: string): Column<Claim>[] {
  return [
    {
      key: "state",
      label: "State",
      cell: (claim) => <State state={claim.waiting ? "waiting" : "running"} />,
    },
    {
      key: "name",
      label: "Run",
      cell: (claim) => <a href={link("run", claim.id ?? "")}>{claim.name || text(claim.id)}</a>,
    },
    { key: "user", label: "User", cell: (claim) => text(claim.user) },
    { key: "cpus", label: "CPUs", cell: (claim) => count(claim.cpus) },
    { key: "memory", label: "Memory", cell: (claim) => (claim.memory ? size(claim.memory) : "–") },
    { key: "gpus", label: "GPUs", cell: gpusOf },
    { key: "message", label: "Waits because", cell: (claim) => reasonOf(claim, runner, user) },
  ];
}

const NODE_COLUMNS: Column<Runner>[] = [
  { key: "name", label: "Node", cell: (node) => text(node.name) },
  { key: "partition", label: "Partition", cell: (node) => text(node.partition) },
  { key: "state", label: "State", cell: (node) => text(node.status) },
  {
    key: "cpus",
    label: "CPUs in use",
    cell: (node) => `${count(node.used?.cpus)} of ${count(node.capacity?.cpus)}`,
  },
  { key: "memory", label: "Memory", cell: (node) => size(node.capacity?.memory) },
  { key: "gpus", label: "GPUs", cell: (node) => count(node.capacity?.gpus) },
];

interface Partition {
  name: string;
  nodes: number;
  cpus: number;
  used: number;
  gpus: number;
}

function partitionsOf(nodes: Runner[]): Partition[] {
  const all = new Map<string, Partition>();

  for (const node of nodes) {
    const name = text(node.partition);
    const sum = all.get(name) ?? { name, nodes: 0, cpus: 0, used: 0, gpus: 0 };

    sum.nodes++;
    sum.cpus += node.capacity?.cpus ?? 0;
    sum.used += node.used?.cpus ?? 0;
    sum.gpus += node.capacity?.gpus ?? 0;
    all.set(name, sum);
  }
  return [...all.values()];
}

const PARTITION_COLUMNS: Column<Partition>[] = [
  { key: "name", label: "Partition", cell: (one) => one.name },
  { key: "nodes", label: "Nodes", cell: (one) => count(one.nodes) },
  { key: "cpus", label: "CPUs in use", cell: (one) => `${count(one.used)} of ${count(one.cpus)}` },
  { key: "gpus", label: "GPUs", cell: (one) => count(one.gpus) },
];

function Cluster() {
  const nodes = usePoll<Runner[]>("read the cluster", "/api/cluster", 10_000);

  const rows = list<Runner>(nodes.data);

  // A machine without Slurm has no cluster to show.
  if (!rows.length) return null;
  return (
    <section aria-label="Slurm">
      <h2>Slurm</h2>
      <Table
        label="Partitions"
        rows={partitionsOf(rows)}
        columns={PARTITION_COLUMNS}
        rowKey={(one) => one.name}
      />
      <h3>Nodes</h3>
      <Table
        label="Nodes"
        rows={rows}
        columns={NODE_COLUMNS}
        rowKey={(node) => `${node.partition} ${node.name}`}
      />
    </section>
  );
}

export function RunnersPage({ about }: { about: About | null }) {
  const runners = usePoll<Runner[]>("read the machine", "/api/runners", 2000);
  const claims = usePoll<Claim[]>("read the claims", "/api/claims", 2000);
  const machines = list<Runner>(runners.data);
  const rows = list<Claim>(claims.data);

  return (
    <section class="page" aria-labelledby="runners-title">
      <h1 id="runners-title">Runners</h1>
      <Failure text={runners.error} />
      {!runners.data && !runners.error && <Waiting what="Loading the machine…" />}
      {machines.map((runner, i) => (
        <Machine key={i} runner={runner} />
      ))}
      <h2>Claims</h2>
      <Failure text={claims.error} />
      {claims.data && !rows.length && <Empty>No run holds or waits for resources.</Empty>}
      {rows.length > 0 && (
        <Table
          label="Claims"
          rows={rows}
          columns={claimColumns(machines[0], about?.user ?? "")}
          rowKey={(claim) => `${claim.id} ${claim.pid}`}
        />
      )}
      {machines[0] && <Users runner={machines[0]} />}
      <Cluster />
    </section>
  );
}
