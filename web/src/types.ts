/* Replies of the server. Any field may be missing or null: another version may have written it. */

type Maybe<T> = T | null | undefined;

export interface About {
  version?: Maybe<string>;
  host?: Maybe<string>;
  home?: Maybe<string>;
  readOnly?: Maybe<boolean>;
  user?: Maybe<string>;
  outputs?: Maybe<string[]>;
}

export interface Notice {
  source?: Maybe<string>;
  reason?: Maybe<string>;
  noticed?: Maybe<string>;
  deadline?: Maybe<string>;
  soon?: Maybe<boolean>;
  withdrawn?: Maybe<boolean>;
}

export interface Attempt {
  state?: Maybe<string>;
  attempt?: Maybe<number>;
  class?: Maybe<string>;
  started?: Maybe<string>;
  ended?: Maybe<string>;
  exit_code?: Maybe<number>;
  step_exit_code?: Maybe<number>;
  message?: Maybe<string>;
  steps_done?: Maybe<number>;
  unflushed?: Maybe<boolean>;
  sync_lag_bytes?: Maybe<number>;
  sync_lag_ms?: Maybe<number>;
  sync_files_published?: Maybe<number>;
  sync_bytes_published?: Maybe<number>;
  sync_error?: Maybe<string>;
  sync_at?: Maybe<string>;
  heard?: Maybe<string>; // last report of a lost attempt, or of another machine
  cost?: Maybe<number>;
  provenance?: Maybe<Provenance>;
}

export interface Provenance {
  overrides?: Maybe<unknown[]>;
  penstock?: Maybe<string>;
  host?: Maybe<string>;
  kernel?: Maybe<string>;
  inputs?: Maybe<unknown[]>;
  price?: Maybe<string>; // price per hour
  [key: string]: unknown;
}

export interface Run extends Attempt {
  id?: Maybe<string>;
  name?: Maybe<string>;
  host?: Maybe<string>;
  place?: Maybe<string>;
  workflow?: Maybe<string>;
  output?: Maybe<string>;
  ports?: Maybe<number[]>;
  created?: Maybe<string>;
  notice?: Maybe<Notice>;
}

export interface Step {
  attempt?: Maybe<number>;
  step?: Maybe<number>;
  name?: Maybe<string>;
  ended?: Maybe<string>;
  state?: Maybe<string>;
  number?: Maybe<string>; // "2.1"
  kind?: Maybe<string>;
  handle?: Maybe<string>;
  depends_on?: Maybe<string[]>;
  if?: Maybe<string>;
  source?: Maybe<string>;
  parallel?: Maybe<boolean>;
  iterations?: Maybe<number>;
  iterations_done?: Maybe<number>;
  iterations_running?: Maybe<number>;
  steps?: Maybe<Step[]>;
  catch?: Maybe<Step[]>;
  finally?: Maybe<Step[]>;
}

/* A run of an experiment tracker. */
export interface Tracked {
  tracker?: Maybe<string>;
  run?: Maybe<string>;
  place?: Maybe<string>;
  url?: Maybe<string>;
}

export interface RunDetails extends Run {
  tracking?: Maybe<Tracked[]>;
  attempts?: Maybe<Attempt[]>;
  steps?: Maybe<Step[]>;
  directory?: Maybe<string>;
  log?: Maybe<string>;
  resources?: unknown;
  endpoint?: Maybe<string>; // store of the output: "embedded", or a URL
  outputs?: Maybe<{ path?: Maybe<string>; open?: Maybe<boolean> }[]>;
  replaced?: Maybe<{ path?: Maybe<string>; url?: Maybe<string>; restore?: Maybe<string> }[]>;
  partial?: Maybe<string[]>;
}

export type Point = [Maybe<number>, Maybe<number>, Maybe<number | string>];

export interface Metric {
  name?: Maybe<string>;
  every?: Maybe<number>;
  points?: Maybe<Point[]>;
  repeated?: Maybe<[Maybe<number>, Maybe<number>, Maybe<number>][]>; // first step, last step, time
}

export interface Checkpoint {
  name?: Maybe<string>;
  file?: Maybe<string>;
  readable?: Maybe<boolean | number>;
  why?: Maybe<string>;
  step?: Maybe<number>;
  attempt?: Maybe<number>;
  time?: Maybe<string>;
  world_size?: Maybe<number>;
  files?: Maybe<number>;
  bytes?: Maybe<number>;
  metrics?: Maybe<Record<string, number | null>>;
}

export interface OutputFile {
  path?: Maybe<string>;
  size?: Maybe<number>;
}

export interface Amounts {
  cpus?: Maybe<number>;
  memory?: Maybe<number>;
  gpus?: Maybe<number>;
  runs?: Maybe<number>;
}

export interface Runner {
  name?: Maybe<string>;
  status?: Maybe<string>;
  partition?: Maybe<string>;
  capacity?: Maybe<Amounts>;
  used?: Maybe<Amounts>;
  waiting?: Maybe<number>;
  asked?: Maybe<Amounts>;
  limits?: Maybe<Amounts>;
  own?: Maybe<Amounts>;
  users?: Maybe<UserAmounts[]>; // users with claims
  enforced?: Maybe<Record<string, boolean>>;
}

export interface UserAmounts {
  user?: Maybe<string>;
  used?: Maybe<Amounts>;
  asked?: Maybe<Amounts>;
  limits?: Maybe<Amounts>;
}

export interface Claim extends Amounts {
  waiting?: Maybe<boolean>;
  gpu_list?: Maybe<number[]>;
  user?: Maybe<string>;
  pid?: Maybe<number>;
  id?: Maybe<string>;
  name?: Maybe<string>;
}

export interface Bucket {
  bucket?: Maybe<string>;
  created?: Maybe<string>;
}

export interface BucketInfo {
  versioning?: Maybe<string>; // "off", "enabled", "suspended"
}

export interface StoredObject {
  key?: Maybe<string>;
  size?: Maybe<number>;
  etag?: Maybe<string>;
  modified?: Maybe<string>;
  deleted?: Maybe<boolean>; // the newest version is a delete marker
}

export interface Listing {
  dirs?: Maybe<string[]>;
  objects?: Maybe<StoredObject[]>;
  next?: Maybe<string>;
}

export interface ObjectInfo extends StoredObject {
  bucket?: Maybe<string>;
  version?: Maybe<string>;
  content_type?: Maybe<string>;
  storage_class?: Maybe<string>;
  retention?: Maybe<{ mode?: Maybe<string>; until?: Maybe<string> }>;
  legal_hold?: Maybe<boolean>;
  metadata?: Maybe<Record<string, unknown>>;
  tags?: Maybe<Record<string, unknown>>; // null if the store refuses them
}

export interface Version {
  key?: Maybe<string>;
  version?: Maybe<string>;
  size?: Maybe<number>;
  modified?: Maybe<string>;
  latest?: Maybe<boolean>;
  deleted?: Maybe<boolean>;
}
