#!/bin/sh
# The whole suite as three runs of like length side by side, for two cores: the contracts of the families, which compute,
# and then the stack; calls; units and integration. `sh tests/run.sh PYTHON [options of pytest]`. The last is shown as
# it comes, the others when they have ended, or as far as they came when all is stopped.
python=$1
shift
calls=$(ls tests/acceptance/test_openai_*.py tests/acceptance/test_peer_*.py)
for name in backfills batches clients commands dead openapi own_client rerank serving streaming survival tei timings verbs webhooks; do
    calls="$calls tests/acceptance/test_$name.py"
done
# Workers that are started and killed mostly wait: they go with the calls, so that no run is much longer than another.
workers=tests/integration/tasks/worker
others=$(printf -- '--ignore=%s ' $calls)

# Nothing is waited for without end: each test has a limit of its own (pyproject.toml), and all that one run does, too.
# An interrupt lets pytest stop the servers that it started.
bounded() {
    exec timeout --signal=INT --kill-after=60 2400 "$python" -m pytest "$@"
}

found=$(mktemp -d)
runs=
show() {
    for part in stack calls; do
        echo
        echo "$part:"
        cat "$found/$part"
    done
    rm -rf "$found"
}
stop() {
    trap '' INT TERM
    kill -INT $runs 2>/dev/null
    wait
    show
    exit 130
}
trap stop INT TERM

# One thread where tests compute: several that share two cores mostly wait for each other.
OMP_NUM_THREADS=1 bounded "$@" tests/adapters >"$found/stack" 2>&1 &
contracts=$!
bounded "$@" $calls $workers >"$found/calls" 2>&1 &
calling=$!
bounded "$@" --ignore=$workers tests/unit tests/integration &
resting=$!
runs="$contracts $calling $resting"
wait "$contracts"
contracted=$?
bounded "$@" $others tests/acceptance >>"$found/stack" 2>&1 &
stack=$!
runs="$stack $calling $resting"
wait "$resting"
rested=$?
wait "$stack"
stacked=$?
wait "$calling"
called=$?
show
[ "$contracted$stacked$called$rested" = 0000 ]
