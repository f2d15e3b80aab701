#!/bin/sh
# Makes a virtual environment at $1 with a Python from 3.11 to 3.13, or says what to install. PYTHON=… chooses one.
set -eu

target=$1
check='import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))'

if [ -x "$target/bin/python" ] && "$target/bin/python" -c "$check; import pip" 2>/dev/null; then
    exit 0
fi

for python in ${PYTHON:-python3 python3.13 python3.12 python3.11 python}; do
    if command -v "$python" >/dev/null 2>&1 && "$python" -c "$check" >/dev/null 2>&1; then
        echo "making $target with $("$python" --version)"
        exec "$python" -m venv --clear "$target"
    fi
done

cat >&2 <<'HINT'
No suitable Python was found: Roost needs Python 3.11, 3.12 or 3.13 with its venv and ensurepip modules.
  Debian, Ubuntu:  apt install python3 python3-venv
  Fedora:          dnf install python3.13
  macOS:           brew install python@3.13
Then run make again, or name an interpreter: make PYTHON=/path/to/python3.12 …
HINT
exit 1
