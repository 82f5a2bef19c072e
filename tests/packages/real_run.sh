#!/bin/sh
# Runs one training program with input and output in the embedded store, kills it and resumes it. The
# archive, the store and its client use all libraries that the program loads at the first call:
# libarchive, libmicrohttpd and libcurl.
set -eu
cd "$(mktemp -d)"
export PENSTOCK_HOME="$PWD/home"
finish() {
	cat log 2>/dev/null || true
	rm -rf "$PWD"
}
trap finish EXIT

echo hello >a.txt
tar -czf in.tar.gz a.txt
cat >workflow.yaml <<'WORKFLOW'
name: first
continuousOutputSync: true
input:
  s3:
    endpointUrl: embedded
    bucketUrl: s3://data
    path: /in.tar.gz
  unpack: true
output:
  s3:
    endpointUrl: embedded
    bucketUrl: s3://first
    path: /
steps:
  - name: train
    run:
      command: |
        cd "$DEEPSQUARE_OUTPUT"
        if [ -e first.txt ]; then
          cat first.txt "$DEEPSQUARE_INPUT"/a.txt > model.txt
        else
          echo resumed > first.txt
          sleep 600
        fi
WORKFLOW
store() { penstock "$@" --endpoint-url embedded; }
store mb s3://data
store put s3://data/in.tar.gz <in.tar.gz

penstock run workflow.yaml >log 2>&1 &
run=$!
tries=0
until store cat s3://first/first.txt 2>/dev/null; do
	kill -0 $run
	tries=$((tries + 1))
	[ $tries -lt 600 ]
	sleep 0.2
done
kill -9 $run
wait $run || true
penstock run workflow.yaml
[ "$(store cat s3://first/model.txt | xargs)" = "resumed hello" ]
penstock ps | grep succeeded
