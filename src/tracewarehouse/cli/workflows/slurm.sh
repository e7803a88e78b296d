#!/bin/bash
# Gates on the traces of a job, written by `tw gate init slurm`: after each step, `srun --epilog=tw-epilog.sh`,
# or as the last line of the batch script. Adapt the folder of the traces and the gates.
# TW_WAREHOUSE is one warehouse for all jobs: a shared folder, or s3://bucket/warehouse.
export TW_WAREHOUSE="${TW_WAREHOUSE:-$HOME/warehouse}"
traces="${TW_JOB_TRACES:-$PWD/traces}"
run="${SLURM_JOB_NAME:-job}-$SLURM_JOB_ID"
report="$PWD/$run-gates.txt"

tw ingest "$traces" --run "$run" --label "job=${SLURM_JOB_NAME:-job}" || exit 0
tw diff @baseline "$run" --match-label job --gate 'step_time<=+3%' --gate 'worst(step_time)<=+50%' > "$report" 2>&1
case $? in
  0) echo "$run: all gates hold" ;;
  3) echo "$run: a gate failed, see $report" ;;
  5) echo "$run: inconclusive, for example with fewer than 12 recorded runs, see $report" ;;
  *) echo "$run: not compared, see $report" ;;
esac
# Each run is the baseline of those that follow.
tw record "$run"
exit 0  # another status would drain the node, where this is the epilog of slurmd
