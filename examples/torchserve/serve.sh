#!/bin/bash
# Serves all models of the directory $PENSTOCK_MODEL with TorchServe, behind HAProxy, which accepts
# connections on the socket of `penstock deploy`.
set -euo pipefail
directory=$(mktemp -d)
cd "$directory"

# Two versions run at the same time, so their TorchServes share no file and no port.
export TEMP=$directory TMPDIR=$directory LOG_LOCATION=$directory/logs METRICS_LOCATION=$directory/logs
cat >config.properties <<EOF
inference_address=unix:$directory/inference
management_address=unix:$directory/management
metrics_address=unix:$directory/metrics
grpc_inference_port=0
grpc_management_port=0
EOF
# By default HAProxy closes idle connections when it exits, so that a request that a client has just
# sent fails.
cat >haproxy.cfg <<EOF
global
    close-spread-time infinite
defaults
    mode http
    timeout connect 10s
    timeout client 120s
    timeout server 120s
    timeout http-keep-alive 10s
listen models
    bind fd@3
    http-after-response set-header Connection close if { stopping }
    server torchserve unix@$directory/inference
EOF

trap 'torchserve --stop --foreground >/dev/null || true; rm -rf "$directory"' EXIT
trap exit TERM
torchserve --start --foreground --ncs --disable-token-auth --enable-model-api --ts-config config.properties \
	--model-store "$PENSTOCK_MODEL" 3<&- &
until curl -s --unix-socket management http://localhost/models >/dev/null; do
	kill -0 $!
	sleep 0.5
done
# TorchServe is healthy without its models, so `--models all` would hide a model that cannot be loaded.
for archive in "$PENSTOCK_MODEL"/*.mar; do
	curl -sS --fail-with-body --unix-socket management -X POST -G http://localhost/models \
		--data-urlencode "url=${archive##*/}" -d initial_workers="${WORKERS:-1}" -d synchronous=true
done
haproxy -db -f haproxy.cfg &
proxy=$!
trap 'kill -USR1 $proxy' TERM
wait -n || true # for SIGTERM, or the end of one of both
kill -USR1 $proxy || true
wait $proxy
