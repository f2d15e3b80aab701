#!/bin/sh
# The whole suite as three runs side by side, for two cores: the contracts of the families compute, acceptance mostly
# waits for processes, the rest does both. `sh tests/run.sh PYTHON [options of pytest]`. The rest is shown as it comes,
# the others when they have ended.
python=$1
shift
found=$(mktemp -d)
# One thread each: several that share two cores mostly wait for each other.
OMP_NUM_THREADS=1 "$python" -m pytest "$@" tests/adapters >"$found/adapters" 2>&1 &
families=$!
"$python" -m pytest "$@" tests/acceptance >"$found/acceptance" 2>&1 &
processes=$!
trap 'kill "$families" "$processes" 2>/dev/null; rm -rf "$found"' EXIT
trap 'exit 130' INT TERM
OMP_NUM_THREADS=1 "$python" -m pytest "$@" --ignore=tests/adapters --ignore=tests/acceptance
rest=$?
wait "$families"
contracts=$?
wait "$processes"
accepted=$?
for part in adapters acceptance; do
    echo
    echo "tests/$part:"
    cat "$found/$part"
done
[ "$rest" -eq 0 ] && [ "$contracts" -eq 0 ] && [ "$accepted" -eq 0 ]
