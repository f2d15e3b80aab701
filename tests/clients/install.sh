#!/bin/sh
# Makes a virtual environment of Python 3.12 at $1 with the released clients of requirements.txt, unless it is there.
# PYTHON312=… chooses the interpreter; sie-sdk needs 3.12.
set -eu

target=$1
here=$(dirname "$0")
wanted=$here/requirements.txt
# What was installed is the stamp's content: the tests compare it with the list.
stamp=$target/.installed
check='import sys, venv, ensurepip; sys.exit(sys.version_info[:2] != (3, 12))'

cmp -s "$wanted" "$stamp" && exit 0

for python in ${PYTHON312:-python3.12 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.12.*/bin/python3.12 python3 python}; do
    if "$python" -c "$check" >/dev/null 2>&1; then
        echo "making $target with $("$python" --version), for the clients"
        "$python" -m venv --clear "$target"
        "$target/bin/python" -m pip install -qq --disable-pip-version-check --no-compile --no-deps -r "$wanted"
        cp "$wanted" "$stamp"
        exit 0
    fi
done

echo "No Python 3.12 with venv was found, which released clients are tested with: install it, or PYTHON312=/path/to/it" >&2
exit 1
