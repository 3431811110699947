// The worker of graphile-worker: `node graphile_worker.cjs '{...}'`, run by run_graphile_worker.py until SIGTERM.
"use strict";

const fs = require("node:fs");
const path = require("node:path");
const { run } = require("graphile-worker");
const { Pool } = require("pg");

const CONNECTIONS = 10;
const ALLOWED_MS = 20;
const WRITE = "insert into public.effect (job, who) values ($1, $2)";
const task = JSON.parse(process.argv[2]);
const who = task.worker ?? "A";

// As results_store.py keeps them. The count is written once for all jobs that end in one turn of the event loop.
const counted = fs.openSync(path.join(task.results, `count-${process.pid}`), "w");
let total = 0n;
let isWritten = true;

function count() {
  total += 1n;
  if (!isWritten) return;
  isWritten = false;
  setImmediate(() => {
    const number = Buffer.alloc(8);
    number.writeBigInt64LE(total);
    fs.writeSync(counted, number, 0, 8, 0);
    isWritten = true;
  });
}

function waited(at) {
  const seconds = Buffer.alloc(8);
  seconds.writeDoubleLE(Number(process.hrtime.bigint()) / 1e9 - at);
  fs.appendFileSync(path.join(task.results, `waited-${process.pid}`), seconds);
  count();
}

const act = (what) => fs.writeFileSync(path.join(task.results, `act-${who}-${what}`), "");
const isAllowed = () => fs.existsSync(path.join(task.results, `allowed-${who}`));
const pool = new Pool({ connectionString: task.postgres_url, max: CONNECTIONS });
const effect = (job) => pool.query({ name: "write", text: WRITE, values: [job, who] });

const taskList = {
  empty: async () => count(),
  timed: async (payload) => waited(payload.at),
  write: async () => {
    await effect("load");
    count();
  },
  zombie: async () => {
    act("started");
    while (!isAllowed()) await new Promise((resolve) => setTimeout(resolve, ALLOWED_MS));
    await effect("zombie");
    act("wrote");
  },
};

async function main() {
  const runner = await run({
    noHandleSignals: true,
    taskList,
    // The settings of its own performance test.
    preset: {
      worker: {
        connectionString: task.postgres_url,
        concurrentJobs: 24,
        maxPoolSize: 25,
        pollInterval: 2000,
        localQueue: { size: 500, refetchDelay: { durationMs: 10 } },
        completeJobBatchDelay: 0,
        failJobBatchDelay: 0,
      },
    },
  });
  const parent = process.ppid;
  setInterval(() => process.ppid === parent || process.exit(1), 1000).unref();
  process.on("SIGTERM", () => runner.stop().finally(() => process.exit(0)));
  await runner.promise;
}

main();
