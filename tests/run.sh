#!/bin/sh
# The whole suite as three runs of like length side by side, for two cores: the contracts of the families, which compute,
# and then the stack; calls; units and integration. `sh tests/run.sh PYTHON [options of pytest]`. The last is shown as
# it comes, the others when they have ended.
python=$1
shift
calls=$(ls tests/acceptance/test_openai_*.py tests/acceptance/test_peer_*.py)
for name in batches clients commands openapi own_client rerank serving streaming survival tei timings verbs; do
    calls="$calls tests/acceptance/test_$name.py"
done
others=$(printf -- '--ignore=%s ' $calls)

found=$(mktemp -d)
(
    # One thread where tests compute: several that share two cores mostly wait for each other.
    OMP_NUM_THREADS=1 "$python" -m pytest "$@" tests/adapters
    contracts=$?
    "$python" -m pytest "$@" $others tests/acceptance
    exit $((contracts || $?))
) >"$found/stack" 2>&1 &
stack=$!
"$python" -m pytest "$@" $calls >"$found/calls" 2>&1 &
called=$!
trap 'kill "$stack" "$called" 2>/dev/null; rm -rf "$found"' EXIT
trap 'exit 130' INT TERM
"$python" -m pytest "$@" tests/unit tests/integration
rest=$?
wait "$stack"
stacked=$?
wait "$called"
answered=$?
for part in stack calls; do
    echo
    echo "$part:"
    cat "$found/$part"
done
[ "$rest" -eq 0 ] && [ "$stacked" -eq 0 ] && [ "$answered" -eq 0 ]
