#!/bin/sh
# The whole suite as two runs side by side, for two cores: the contracts of the families compute, the rest mostly waits
# for processes. `sh tests/run.sh PYTHON [options of pytest]`. The lines of the second run come last.
python=$1
shift
found=$(mktemp)
"$python" -m pytest "$@" tests/adapters >"$found" 2>&1 &
families=$!
trap 'kill "$families" 2>/dev/null; rm -f "$found"' EXIT
trap 'exit 130' INT TERM
"$python" -m pytest "$@" --ignore=tests/adapters
rest=$?
wait "$families"
contracts=$?
echo
echo "tests/adapters:"
cat "$found"
[ "$rest" -eq 0 ] && [ "$contracts" -eq 0 ]
